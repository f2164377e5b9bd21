import { InputFault, labelOf } from '../administration/input.ts'
import {
  type ParkedEvent,
  parkedEvents,
  releaseParked,
  retryParked,
} from '../administration/projections/parked.ts'
import { projectionNamed, projectionParameter, reporter } from './chosen-projections.ts'
import { type Command, type Given, wholeOrNot } from './command.ts'
import { table } from './table.ts'

const parkedJson = (one: ParkedEvent) => ({
  projection: one.projection,
  position: one.position.toString(),
  stream: one.stream,
  type: one.type,
  state: one.state,
  error: one.error,
  parked_at: one.parkedAt.toISOString(),
  released_by: one.releasedBy,
  reason: one.reason,
})

const list: Command = {
  name: 'projection parked',
  summary: 'the events that could not be folded, with their errors',
  parameters: [{ name: 'name', help: 'one projection; default: all' }],
  changes: 'nothing',
  run: async ({ foundation }, given) => {
    const name = given.text('name')
    const projection = name === undefined ? null : projectionNamed(name).name
    const rows = (await parkedEvents(await foundation({ anyHistory: true }), projection)).map(parkedJson)
    return {
      json: rows,
      failed: rows.some(({ state }) => state !== 'released'),
      lines: rows.length === 0 ? ['nothing is set aside'] : table(rows),
    }
  },
}

const retry: Command = {
  name: 'projection retry',
  summary: 'fold a projection anew if this release can read what was set aside',
  parameters: [projectionParameter],
  changes: {
    of: 'rows',
    asks: 'on a terminal',
    left: 'The live rows are what they were, unless the switch was made: "projection rebuilds" says so.',
    plan: async ({ foundation }, given) => {
      const { name } = projectionNamed(given.required('name'))
      const waiting = (await parkedEvents(await foundation(), name)).filter(
        ({ state }) => state !== 'released',
      )
      return {
        says: [
          waiting.length === 0
            ? `Nothing: no event of ${name} is set aside.`
            : `Fold ${name} anew if this release can read the ${waiting.length} events that were set aside, and switch.`,
        ],
      }
    },
  },
  run: async (context, given) => {
    const projection = projectionNamed(given.required('name'))
    const foundation = await context.foundation()
    const { waiting, unreadable, left } = await retryParked(foundation, {
      projection,
      ...foundation.operator,
      logger: context.logger,
      mayForget: async () => false,
      onProgress: reporter([projection], context),
    })
    if (waiting.length === 0)
      return { json: { name: projection.name, retried: 0, left: [] }, lines: ['nothing is set aside'] }
    if (unreadable.length > 0)
      return {
        json: { name: projection.name, retried: 0, left: left.map(parkedJson) },
        failed: true,
        lines: [...unreadable, 'nothing was changed: run the release that knows these events'],
      }
    return {
      json: { name: projection.name, retried: waiting.length, left: left.map(parkedJson) },
      failed: left.length > 0,
      lines: [
        `${projection.name}: ${waiting.length - left.length} of ${waiting.length} events are folded now`,
        ...left.map(({ position, stream, error }) => `position ${position} of ${stream}: ${error}`),
      ],
    }
  },
}

const releaseOf = (given: Given) => {
  const projection = projectionNamed(given.required('name'))
  const text = given.required('position')
  if (!/^\d{1,19}$/.test(text))
    throw new InputFault('position', `"${text}" is not a position of the event log`)
  const reason = labelOf('reason', given.required('reason'))
  return { projection, text, reason }
}

const release: Command = {
  name: 'projection release',
  summary: 'let a projection go on without an event for ever; not of money, not of keys',
  parameters: [
    projectionParameter,
    { name: 'position', help: 'of the event, as "projection parked" says', required: true },
    { name: 'reason', help: 'kept in the event log', required: true },
  ],
  changes: {
    of: 'rows',
    asks: 'always',
    left: wholeOrNot('projection parked'),
    plan: async ({ foundation }, given) => {
      const { projection, text } = releaseOf(given)
      const found = (await parkedEvents(await foundation(), projection.name)).find(
        ({ position }) => position === BigInt(text),
      )
      const what = found === undefined ? '' : `, a ${found.type} of ${found.stream}`
      return {
        says: [`Let ${projection.name} go on without the event at position ${text}${what}, for ever.`],
      }
    },
  },
  run: async ({ foundation }, given) => {
    const { projection, text, reason } = releaseOf(given)
    const open = await foundation()
    const position = BigInt(text)
    await releaseParked(open, { projection, position, reason, ...open.operator })
    return {
      json: { name: projection.name, position: text, reason },
      lines: [`${projection.name} goes on without the event at position ${text}`],
    }
  },
}

export const parkedCommands: readonly Command[] = [list, retry, release]
