import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { apiKeys } from '../../../projections/api-keys.ts'
import { projections } from '../../../projections/index.ts'
import { within } from '../../concurrency/deadline.ts'
import type { Config } from '../../config.ts'
import { type EventLog, logStart } from '../../event-log/port.ts'
import { telling } from '../../foundation/open-event-log.ts'
import { knownEventLog, mayAppend, nameOfEventLog } from '../../foundation/own-event-log.ts'
import { type ProjectionState, projectionStates } from '../projections.ts'
import { type Check, durationText, fault, ok, reasonOf, type Told, warning } from './finding.ts'

/** Whether the event log answers and takes events, and whether the rows follow it. */

type Logged = { readonly config: Config; readonly pool: pg.Pool; readonly eventLog: EventLog }

/** An event log that hangs must not hang who asks what is wrong. */
const answerMaxMs = 5_000

/** Asks the event log first: where it is away, everything that reads it would say so again. */
export const reachEventLog = (logged: Logged): Promise<{ readonly told: Told; readonly answers: boolean }> =>
  within(eventLogState(logged), { waitMs: answerMaxMs }, () => ({
    told: away(logged.config, `no answer within ${answerMaxMs / 1_000} s`),
    answers: false,
  }))

export const projectionsCheck = (logged: Logged): Check => ({
  about: 'projections',
  look: () => rowsFollow(logged),
})

const away = (config: Config, why: string): Told =>
  fault(
    `${nameOfEventLog(config)}: ${why}`,
    config.EVENT_LOG_URL === undefined
      ? 'See what is said of the database. Calls get 503 meanwhile, and go on by themselves.'
      : 'See that EventStoreDB runs and that EVENT_LOG_URL names it with a user who may read and append ("event-log prepare").',
  )

const eventLogState = async ({
  config,
  pool,
  eventLog,
}: Logged): Promise<{ readonly told: Told; readonly answers: boolean }> => {
  const name = nameOfEventLog(config)
  const named = { variable: 'EVENT_LOG_URL', url: config.EVENT_LOG_URL ?? 'postgres' }
  try {
    return await telling(named, async () => {
      const head = await eventLog.head()
      const known = await knownEventLog(pool)
      if (known !== undefined && known !== name) return { told: anotherLog(known, name), answers: true }
      // Sends an event again that is there: nothing is written, and it is refused where this user may not write.
      if (config.EVENT_LOG_URL !== undefined) await mayAppend(eventLog)
      const last = head === logStart ? null : await eventLog.at(head)
      const age = last === null ? '' : `, the last event ${durationText(Date.now() - last.recordedAtMs)} ago`
      return { told: ok(`${name}, at position ${head}${age}`, { position: head.toString() }), answers: true }
    })
  } catch (error) {
    return { told: away(config, reasonOf(error)), answers: false }
  }
}

const anotherLog = (known: string, name: string): Told =>
  fault(
    `the read models were folded from ${known}, and the event log is ${name}`,
    'Name the log they belong to, or copy it with "event-log copy" and run "projection rebuild --all".',
  )

/** Rows that are behind for a moment are what a working projector looks like, so a second look decides. */
const secondLookMs = 1_500

const rowsFollow = async (logged: Logged): Promise<Told | Told[]> => {
  const names = new Set(projections.map(({ name }) => name))
  const look = async () => {
    const { head, states } = await projectionStates(logged)
    return { head, states: states.filter(({ name }) => names.has(name)) }
  }
  const first = await look()
  const isLate = ({ behind, state }: ProjectionState): boolean =>
    behind !== null && behind > 0n && state === 'live'
  let now = first
  if (first.states.some(isLate)) {
    await sleep(secondLookMs)
    now = await look()
  }
  const slow = now.states.filter((state) => isLate(state) && state.position < first.head)
  const stuck = slow.filter(({ name, position }) =>
    first.states.some((before) => before.name === name && before.position === position),
  )
  const found = [
    ...now.states.flatMap((state) => [...halted(state), ...parked(state)]),
    ...late(stuck, { moves: false }),
    ...late(
      slow.filter((state) => !stuck.includes(state)),
      { moves: true },
    ),
  ]
  const behind = now.states.reduce(
    (most, { behind }) => (behind !== null && behind > most ? behind : most),
    0n,
  )
  if (found.length > 0) return found
  if (now.states.length < names.size)
    return warning(
      `${names.size - now.states.length} of ${names.size} have no rows yet`,
      'Start a process with the role projector.',
    )
  return ok(`${now.states.length} follow the event log, ${behind} positions behind at most`, {
    behind: Number(behind),
  })
}

const halted = ({ name, state, error, haltedStreams }: ProjectionState): Told[] => [
  ...(state === 'halted'
    ? [
        fault(
          `${name} is halted: ${reasonOf(error ?? 'no reason is kept')}`,
          `Run the release that knows the event, or mend its cause; then "projection rebuild ${name}".`,
        ),
      ]
    : []),
  ...(haltedStreams[0] === undefined
    ? []
    : [
        fault(
          `${name}: the rows of ${haltedStreams.length === 1 ? haltedStreams[0].stream : `${haltedStreams.length} ledgers, ${haltedStreams[0].stream} among them,`} stop before an event that cannot be folded`,
          `"projection parked ${name}" names the event; then "projection retry ${name}", or "projection rebuild ${name}".`,
        ),
      ]),
]

const parked = ({ name, parked: events }: ProjectionState): Told[] => {
  if (events === 0) return []
  const says = `${name}: ${events === 1 ? 'an event was' : `${events} events were`} set aside because ${events === 1 ? 'it' : 'they'} could not be folded`
  const remedy = `"projection parked ${name}" shows ${events === 1 ? 'it with its error' : 'them with their errors'}; "projection retry ${name}" folds them in where this release can read them.`
  // What guards is refused where its events cannot be read.
  return [name === apiKeys.name ? fault(`${says}: their keys are refused`, remedy) : warning(says, remedy)]
}

/** Most are folded together, so what makes one late makes all of them late. */
const late = (states: readonly ProjectionState[], { moves }: { readonly moves: boolean }): Told[] => {
  if (states.length === 0) return []
  const names = states.map(({ name }) => name).join(', ')
  const behind = states.reduce(
    (most, state) => ((state.behind ?? 0n) > most ? (state.behind ?? 0n) : most),
    0n,
  )
  const says = `${names}: ${behind} positions behind the event log, and`
  return [
    moves
      ? warning(
          `${says} moving`,
          'Balances and statements are late meanwhile. If it lasts, see processor time and disk of the projector and the database.',
        )
      : fault(
          `${says} not moving`,
          'See that a process with the role projector runs, and what it logs. "projection list" shows where each is.',
        ),
  ]
}
