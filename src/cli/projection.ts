import {
  type ProjectionState,
  projectionStates,
  verifyRows,
} from '../administration/projections/projections.ts'
import type { Verdict } from '../projector/verify.ts'
import { chosenProjections, projectionParameters, reporter } from './chosen-projections.ts'
import type { Command } from './command.ts'
import { parkedCommands } from './parked.ts'
import { rebuildCommands } from './rebuild.ts'
import { table } from './table.ts'

const list: Command = {
  name: 'projection list',
  summary: 'where every projection stands, and how far behind the event log',
  parameters: [],
  changes: 'nothing',
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

const verify: Command = {
  name: 'projection verify',
  summary: 'rebuild projections beside the live ones and compare row for row',
  parameters: projectionParameters,
  changes: 'nothing',
  run: async (context, given) => {
    const { foundation, logger } = context
    const chosen = chosenProjections(given)
    const verdicts = await verifyRows(await foundation(), {
      projections: chosen,
      logger,
      onProgress: reporter(chosen, context),
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

export const projectionCommands: readonly Command[] = [list, ...rebuildCommands, verify, ...parkedCommands]
