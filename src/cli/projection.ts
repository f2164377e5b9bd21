import { projections } from '../../projections/index.ts'
import type { Projection } from '../../projections/projection.ts'
import { labelOf } from '../administration/input.ts'
import { type ProjectionState, projectionStates, rebuild, verifyRows } from '../administration/projections.ts'
import { formatCredits } from '../billing/money.ts'
import type { OnlyInRows } from '../projector/only-in-rows.ts'
import type { RebuildProgress } from '../projector/second-set.ts'
import type { Verdict } from '../projector/verify.ts'
import { type Command, type CommandContext, type Given, UsageError } from './command.ts'
import { table } from './table.ts'

const projectionNames = projections.map(({ name }) => name).join(', ')

const nameParameters = [
  { name: 'name', help: `one of ${projectionNames}` },
  { name: 'all', help: 'every projection', kind: 'flag' },
] as const

const list: Command = {
  name: 'projection list',
  summary: 'where every projection stands, and how far behind the event log',
  parameters: [],
  run: async ({ foundation }) => {
    const { states } = await projectionStates(await foundation({ anyHistory: true }))
    const listed = states.map(stateJson)
    return {
      json: listed,
      failed: listed.some(({ state, halted_streams }) => state === 'halted' || halted_streams.length > 0),
      lines: [
        ...table(
          listed.map(({ error, halted_streams, ...row }) => ({
            ...row,
            halted_streams: halted_streams.length,
          })),
        ),
        ...listed.flatMap(({ name, error }) => (error === null ? [] : [`${name}: ${error}`])),
        ...listed.flatMap(({ name, halted_streams }) =>
          halted_streams.map(
            ({ stream, position, error }) =>
              `${name}: the rows of ${stream} stop before position ${position}: ${error}`,
          ),
        ),
      ],
    }
  },
}

const stateJson = (one: ProjectionState) => ({
  name: one.name,
  version: one.version,
  state: one.state,
  position: one.position.toString(),
  behind: one.behind?.toString() ?? null,
  parked: one.parked,
  halted_streams: one.haltedStreams.map(({ stream, position, error }) => ({
    stream,
    position: position.toString(),
    error,
  })),
  updated_at: one.updatedAt.toISOString(),
  error: one.error,
})

const rebuilding: Command = {
  name: 'projection rebuild',
  summary: 'fold projections anew from the event log and switch; readers see the old rows until then',
  parameters: [
    ...nameParameters,
    { name: 'reason', help: 'kept in the event log (default "asked by operator")' },
    { name: 'yes', help: 'forget what only the rows know, without being asked', kind: 'flag' },
  ],
  run: async (context, given) => {
    // Hours of work at worst: it is never what leaving a name out means.
    if (given.text('name') === undefined && !given.flag('all'))
      throw new UsageError(`name a projection, or give --all; there are ${projectionNames}`)
    const chosen = chosenProjections(given)
    const reason = labelOf('reason', given.text('reason') ?? 'asked by operator')
    const foundation = await context.foundation({
      anyEventLog: chosen.length === projections.length,
      anyHistory: true,
    })
    const { events, elapsedMs, switched } = await rebuild(foundation, {
      projections: chosen,
      reason,
      actor: 'cli',
      mayForget: (lost) => mayForget(lost, given, context),
      onProgress: reporter(chosen, context.progress),
    })
    if (!switched)
      return {
        json: { projections: [], switched },
        failed: true,
        lines: ['nothing was changed: the rows are as they were, and halted'],
      }
    const seconds = Math.round(elapsedMs) / 1000
    return {
      json: {
        projections: chosen.map(({ name, version }) => ({ name, version })),
        events,
        seconds,
        events_per_second: rateOf(events, elapsedMs),
      },
      lines: [`rebuilt ${namesOf(chosen)} from ${events} events in ${seconds} s`],
    }
  },
}

const verify: Command = {
  name: 'projection verify',
  summary: 'rebuild projections beside the live ones and compare row for row',
  parameters: nameParameters,
  run: async ({ foundation, progress, logger }, given) => {
    const chosen = chosenProjections(given)
    const verdicts = await verifyRows(await foundation(), {
      projections: chosen,
      logger,
      onProgress: reporter(chosen, progress),
    })
    const verified = verdicts.map(verdictJson)
    return {
      json: verified,
      failed: verified.some(({ ok }) => !ok),
      lines: verified.flatMap(({ name, ok, rows, position, differences }) => [
        `${ok ? 'same     ' : 'DIFFERENT'}  ${name}  ${rows} rows at position ${position}`,
        ...differences.flatMap(({ table, only_live, only_rebuilt }) => [
          ...only_live.map((row) => `  ${table}: only live     ${row}`),
          ...only_rebuilt.map((row) => `  ${table}: only rebuilt  ${row}`),
        ]),
      ]),
    }
  },
}

const verdictJson = ({ name, position, rows, differences }: Verdict) => ({
  name,
  ok: differences.length === 0,
  position: position.toString(),
  rows,
  differences: differences.map(({ table, live, rebuilt, onlyLive, onlyRebuilt }) => ({
    table,
    live_rows: live,
    rebuilt_rows: rebuilt,
    only_live: onlyLive,
    only_rebuilt: onlyRebuilt,
  })),
})

export const projectionCommands: readonly Command[] = [list, rebuilding, verify]

const listedMax = 1_000

/** Lists what a rebuild from a shorter log would forget, and asks. Standard output is kept for the answer. */
const mayForget = async (
  lost: readonly OnlyInRows[],
  given: Given,
  { ask }: CommandContext,
): Promise<boolean> => {
  if (lost.length === 0) return true
  const lines = [
    'The event log was restored from an older copy, or replaced. Only the rows know the following, and the rebuild forgets it:',
    ...lost.slice(0, listedMax).map(lostLine),
    ...(lost.length > listedMax ? [`  and ${lost.length - listedMax} more`] : []),
    'Revoked keys work again, erased people come back, and credits are as the log has them, until you repeat what is listed.',
  ]
  process.stderr.write(`${lines.join('\n')}\n`)
  if (given.flag('yes')) return true
  const answer = await ask('Rebuild from this log and forget the above?')
  if (answer === null)
    process.stderr.write('Nobody can be asked here: run it on a terminal, or with --yes.\n')
  return answer === true
}

const lostLine = ({ kind, what, organization_id, at, amount_micro }: OnlyInRows): string => {
  const amount = amount_micro === null ? null : `${formatCredits(BigInt(amount_micro))} credits`
  return [`  ${kind}`, what, organization_id, at, amount].filter((part) => part !== null).join('  ')
}

/** The projections named, or all of them when none is. */
const chosenProjections = (given: Given): readonly Projection[] => {
  const name = given.text('name')
  if (name === undefined || given.flag('all')) return projections
  const projection = projections.find((one) => one.name === name)
  if (projection === undefined)
    throw new UsageError(`there is no projection "${name}"; there are ${projectionNames}`)
  return [projection]
}

const namesOf = (chosen: readonly Projection[]): string => chosen.map(({ name }) => name).join(', ')

const rateOf = (events: number, elapsedMs: number): number =>
  elapsedMs === 0 ? 0 : Math.round((events * 1000) / elapsedMs)

const reporter =
  (chosen: readonly Projection[], progress: (line: string) => void) =>
  ({ position, target, events, elapsedMs }: RebuildProgress): void => {
    const share = target === 0n ? 1 : Number(position) / Number(target)
    const leftS = share === 0 ? 0 : Math.ceil((elapsedMs / share - elapsedMs) / 1000)
    progress(
      `${namesOf(chosen)}  position ${position} of ${target} (${Math.floor(share * 100)} %)  ${rateOf(events, elapsedMs)} events/s  ${leftS} s left`,
    )
  }
