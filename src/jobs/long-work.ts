import type { PgBoss, WorkOptions } from 'pg-boss'
import type { Logger } from 'pino'
import { declarationNamed } from '../administration/declarations.ts'
import type { Context } from '../administration/declare.ts'
import { longWorkQueue } from '../administration/jobs/jobs.ts'
import {
  forgetProgress,
  type LongWorkOutcome,
  type LongWorkRequest,
  longWorkOptions,
  type Packed,
  refusalOf,
  storeProgress,
} from '../administration/jobs/long-work.ts'
import { type Operator, provedUserOf } from '../administration/operator.ts'
import { catchUp } from '../administration/projections/catch-up.ts'
import { mayDo } from '../administration/roles.ts'
import { openUserDirectory, type UserDirectory } from '../administration/users/user-directory.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { CommandRefused } from '../ledger/command.ts'

/** Runs the long commands and queries that users start from any interface. */

const concurrencyMax = 2
/** A notification starts new work immediately. Polling finds work that had to wait because all workers were busy. */
const pollingSeconds = 2
const progressPauseMs = 200
/** In UTF-16 units. A page with a larger answer would be slow. */
const answerCharactersMax = 16 * 1024 * 1024

type Options = { readonly logger: Logger; readonly twoPerson: boolean }

export const serveLongWork = async (
  boss: PgBoss,
  foundation: Foundation,
  { logger, twoPerson }: Options,
): Promise<void> => {
  await boss.createQueue(longWorkQueue, longWorkOptions)
  await boss.updateQueue(longWorkQueue, longWorkOptions)
  const users = openUserDirectory(foundation)
  await boss.work<Packed, Packed | undefined, WorkOptions & { readonly includeMetadata: true }>(
    longWorkQueue,
    {
      pollingIntervalSeconds: pollingSeconds,
      notifyPollingIntervalSeconds: pollingSeconds,
      localConcurrency: concurrencyMax,
      includeMetadata: true,
    },
    async ([job]): Promise<Packed | undefined> => {
      if (job === undefined) return undefined
      await forgetProgress(foundation.pool)
      const request = JSON.parse(job.data.text) as LongWorkRequest
      const about = { work: request.name, id: job.id, actor: request.operator.actor }
      try {
        const { operator } = request
        const asked = { operator, id: job.id, requestedAt: job.createdOn.toISOString() }
        const context = contextOf(foundation, { logger, twoPerson, ...asked })
        const outcome = await outcomeOf(request, context, users)
        logger.info({ ...about, outcome: outcome.kind }, 'long work done')
        return { text: textOf(outcome) }
      } catch (error) {
        logger.error({ ...about, err: error }, 'long work failed')
        throw error
      }
    },
  )
}

const contextOf = (
  foundation: Foundation,
  {
    id,
    ...asked
  }: Options & { readonly operator: Operator; readonly id: string; readonly requestedAt: string },
): Context => {
  let storedAtMs = -progressPauseMs
  return {
    foundation,
    ...asked,
    progress: (line, figures) => {
      if (performance.now() - storedAtMs < progressPauseMs) return
      storedAtMs = performance.now()
      storeProgress(foundation.pool, id, { line, figures }).catch((error: unknown) =>
        asked.logger.debug({ err: error }, 'the progress of long work was not stored'),
      )
    },
    caughtUp: () => catchUp(foundation, asked.logger),
    data: notHere,
    outside: notHere,
    pixel: notHere,
    dashboardUrl: notHere,
  }
}

const notHere = async (): Promise<never> => {
  throw new Error('a command or query that runs as a job has no access to this')
}

/** Returns a refusal as an outcome, because another attempt would not help. Throws any other error. */
const outcomeOf = async (
  request: LongWorkRequest,
  context: Context,
  users: UserDirectory,
): Promise<LongWorkOutcome> => {
  try {
    await requireStillAllowed(request, users)
    const answer = await declarationNamed(request.name).read(request.given).run(context)
    return { kind: 'done', answer }
  } catch (error) {
    const refused = refusalOf(error)
    if (refused === null) throw error
    return refused
  }
}

/** Throws if the user who requested the work has since been disabled or been given another role. */
const requireStillAllowed = async (
  { name, operator }: LongWorkRequest,
  users: UserDirectory,
): Promise<void> => {
  const user = provedUserOf(operator.actor)
  // An actor without a user or a role had direct access to the database.
  if (user === null && operator.role === null) return
  const now = user === null ? null : await users.standing(user)
  if (now?.kind !== 'acts' || now.role !== operator.role || !mayDo(now.role, declarationNamed(name).action))
    throw new CommandRefused(`${operator.actor} no longer has permission to do this, so nothing was done`)
}

const textOf = (outcome: LongWorkOutcome): string => {
  const text = JSON.stringify(outcome)
  if (outcome.kind !== 'done' || text.length <= answerCharactersMax) return text
  const tooLarge = {
    ...outcome.answer,
    json: { answer: 'too large to store' },
    lines: [
      'The command succeeded, but its answer is too large to store. On the command line, --here shows answers of any size.',
    ],
  }
  delete tooLarge.sections
  return JSON.stringify({ kind: 'done', answer: tooLarge } satisfies LongWorkOutcome)
}
