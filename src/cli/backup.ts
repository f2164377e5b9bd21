import { projections } from '../../projections/index.ts'
import { ArchiveFault } from '../administration/backup/archive.ts'
import { type CheckedBackup, checkChain } from '../administration/backup/check.ts'
import { createBackup } from '../administration/backup/create.ts'
import { recordRestored } from '../administration/backup/recorded.ts'
import { checkRestorable, checkTarget, restoreBackup } from '../administration/backup/restore.ts'
import { verifyEventLog } from '../administration/checkpoints.ts'
import { InputFault } from '../administration/input.ts'
import { rebuild } from '../administration/rebuilds.ts'
import { keyDirOf } from '../foundation/data-dir.ts'
import { knownSecretKeysOf } from '../foundation/secret-key.ts'
import { ringOf } from '../guard/secret-ring.ts'
import { reporter } from './chosen-projections.ts'
import type { Answer, Command, CommandContext, OperatedFoundation } from './command.ts'

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`

const secretsNote = (context: Pick<CommandContext, 'config'>): string =>
  `Not in it: SECRET_KEY and KEY_DIR (${keyDirOf(context.config)}). Without them it is of no use; keep copies of both elsewhere.`

const create: Command = {
  name: 'backup create',
  summary:
    'copy everything that is not derived into a file, as it is at one moment, while the service runs; without SECRET_KEY and KEY_DIR',
  parameters: [
    { name: 'file', help: 'a new file, such as 2026-03-01.tar; mode 0600', required: true, kind: 'file' },
    {
      name: 'after',
      help: 'an earlier backup in the same directory: of the event log only what came since is copied',
      kind: 'file',
    },
  ],
  changes: {
    of: 'records',
    asks: 'never',
    left: 'No half of a backup is taken for one: the same command makes it anew.',
    plan: async (_, given) => {
      const after = given.text('after')
      return {
        says: [
          `Copy everything that is not derived into ${given.required('file')}${after === undefined ? '' : `, of the event log what came since ${after}`}, and record that.`,
        ],
      }
    },
  },
  run: async (context, given) => {
    const path = given.required('file')
    const foundation = await context.foundation()
    const { manifest, bytes, sha256, rows, elapsedMs } = await createBackup(foundation, {
      ...{ path, after: given.text('after'), ...foundation.operator },
      onProgress: ({ table, readBytes, ofBytes }) =>
        context.progress(`${table}: ${megabytes(readBytes)} of about ${megabytes(ofBytes)} read`),
    })
    const { backup_id, head, after, holds_log } = manifest
    return {
      json: {
        ...{ backup_id, file: path, bytes, sha256, position: head.position },
        ...{ after: after?.backup_id ?? null, holds_event_log: holds_log, rows },
        seconds: Math.round(elapsedMs) / 1000,
        not_included: ['SECRET_KEY', 'KEY_DIR'],
      },
      lines: [
        `${path}  ${megabytes(bytes)}  sha256 ${sha256}`,
        holds_log
          ? `The event log up to position ${head.position}${after === null ? '' : `, from ${after.head.position} on: a restore needs ${after.file} beside it`}, and every table that is not derived from it.`
          : `Every table that is not derived from the event log. The event log is ${manifest.event_log} and is not in it: copy that now, by its own way.`,
        secretsNote(context),
      ],
    }
  },
}

const verify: Command = {
  name: 'backup verify',
  summary: 'read a backup, and those it continues, and prove them whole and ours; nothing is written',
  parameters: [{ name: 'file', help: 'the newest of them', required: true, kind: 'file' }],
  changes: 'nothing',
  run: async (context, given) => {
    const secretKeys = await knownSecretKeysOf(context.config)
    if (secretKeys === null)
      throw new InputFault(
        'file',
        'SECRET_KEY is not set and DATA_DIR holds none: without it a backup cannot be checked',
      )
    return faulted(async () => {
      const chain = await checkChain(given.required('file'), {
        secretKey: ringOf(secretKeys),
        onProgress: (readBytes) => context.progress(`${megabytes(readBytes)} read`),
      })
      return {
        json: chain.map(backupJson),
        lines: chain.map(
          ({ path, manifest, bytes, sha256 }) =>
            `ok  ${path}  ${megabytes(bytes)}  made ${manifest.made_at}  position ${manifest.head.position}  sha256 ${sha256}`,
        ),
      }
    })
  },
}

const backupJson = ({ path, manifest, bytes, sha256, rows }: CheckedBackup) => ({
  ...{ ok: true, file: path, bytes, sha256, backup_id: manifest.backup_id, made_at: manifest.made_at },
  ...{ release: manifest.release, position: manifest.head.position, holds_event_log: manifest.holds_log },
  after: manifest.after?.backup_id ?? null,
  rows,
})

/** A damaged file is an answer, not wrong usage. */
const faulted = async (work: () => Promise<Answer>): Promise<Answer> => {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof ArchiveFault)) throw error
    return { json: { ok: false, error: error.message }, failed: true, lines: [error.message] }
  }
}

const restore: Command = {
  name: 'backup restore',
  summary:
    'put a backup, and those it continues, into an empty installation, verify its event log and fold every projection',
  parameters: [
    {
      name: 'file',
      help: 'the newest of them; earlier ones are looked for beside it',
      required: true,
      kind: 'file',
    },
    {
      name: 'keys-lost',
      help: 'go on although keys of KEY_DIR are lost, and with them the profiles sealed under them',
      kind: 'flag',
    },
  ],
  changes: {
    of: 'records',
    asks: 'on a terminal',
    left: 'The installation may be restored in part: empty its database, and give the command again.',
    plan: async ({ config, logger, progress }, given) => {
      const { chain, last } = await checkRestorable(config, {
        ...{ path: given.required('file'), keysLost: given.flag('keys-lost') },
        onProgress: ({ phase, readBytes }) => progress(`${phase} ${megabytes(readBytes)}`),
      })
      await checkTarget(config, { chain, logger, waitMs: databaseWaitMs })
      return {
        says: [
          `Put ${chain.map(({ path }) => path).join(', ')} into this installation, which is empty: as of ${last.manifest.made_at}, position ${last.manifest.head.position}.`,
          ...(given.flag('keys-lost') ? ['Profiles whose keys are lost stay sealed for good.'] : []),
        ],
      }
    },
  },
  run: (context, given) =>
    faulted(async () => {
      const { config, logger, progress } = context
      const startedAt = performance.now()
      const { chain, rows } = await restoreBackup(config, {
        ...{
          path: given.required('file'),
          keysLost: given.flag('keys-lost'),
          logger,
          waitMs: databaseWaitMs,
        },
        onProgress: ({ phase, readBytes }) => progress(`${phase} ${megabytes(readBytes)}`),
      })
      const foundation = await context.foundation({ anyEventLog: true, anyHistory: true })
      return await proved(context, foundation, { chain, rows, startedAt })
    }),
}

const databaseWaitMs = 60_000

type Restored = {
  readonly chain: readonly CheckedBackup[]
  readonly rows: Readonly<Record<string, number>>
  readonly startedAt: number
}

/** The event log is proved before anything is derived from it. */
const proved = async (
  context: CommandContext,
  foundation: OperatedFoundation,
  { chain, rows, startedAt }: Restored,
): Promise<Answer> => {
  const { events, streams, faults } = await verifyEventLog(foundation, {
    against: undefined,
    onProgress: ({ position, head }) => context.progress(`verified up to ${position} of ${head}`),
  })
  if (faults.length > 0)
    return {
      json: { ok: false, faults },
      failed: true,
      lines: [
        `the event log was loaded as it was backed up, and is broken in ${faults.length} places, beginning with ${faults[0]?.stream}: ${faults[0]?.fault}`,
        'See "event-log verify". Nothing was derived from it yet: "projection rebuild --all" does that.',
      ],
    }
  await recordRestored(foundation, chain, foundation.operator.actor)
  const rebuilt = await rebuild(foundation, {
    ...{ projections, reason: 'restored from a backup', ...foundation.operator, logger: context.logger },
    mayForget: async () => true,
    onProgress: reporter(projections, context),
  })
  const last = chain.at(-1)
  const seconds = Math.round(performance.now() - startedAt) / 1000
  return {
    json: {
      ...{
        ok: true,
        files: chain.map(({ path, sha256 }) => ({ file: path, sha256 })),
        made_at: last?.manifest.made_at,
      },
      ...{
        position: last?.manifest.head.position,
        events,
        streams,
        rows,
        folded_events: rebuilt.events,
        seconds,
      },
    },
    lines: [
      `restored as of ${last?.manifest.made_at}, position ${last?.manifest.head.position}: ${events} events in ${streams} streams are proved, ${rebuilt.events} folded, in ${seconds} s`,
      'What happened after that is not here: calls, grants and revoked keys since then have to be repeated. Erasures since then are in KEY_DIR, and are applied when the service starts.',
      'People sign in to the dashboard again. Start the service, then look with "doctor".',
    ],
  }
}

export const backupCommands: readonly Command[] = [create, verify, restore]
