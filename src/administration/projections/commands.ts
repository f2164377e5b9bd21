import { z } from 'zod'
import { projections } from '../../../projections/index.ts'
import type { Projection } from '../../../projections/projection.ts'
import { creditsText, formatCredits } from '../../billing/money.ts'
import type { TotalDifference } from '../../projector/compare-totals.ts'
import { lossDigest, type OnlyInRows } from '../../projector/only-in-rows.ts'
import { verifyProjections } from '../../projector/verify.ts'
import { command, NeedsConsent, query } from '../declare.ts'
import { choice, flag, line, position, reason } from '../fields.ts'
import { InputFault } from '../input.ts'
import { catchUp } from './catch-up.ts'
import { parkedEvents, releaseParked, retryParked } from './parked.ts'
import { namesOf, rateOf, reporter } from './progress.ts'
import { projectionStates } from './projections.ts'
import { cancelRebuilds, rebuild, rebuilds } from './rebuilds.ts'

const names = projections.map(({ name }) => name)
const projection = () => choice({ label: 'Projection', help: 'the name of a projection' }, names)
/** The default help adds that the organization sees the reason, but a rebuild does not concern an organization. */
const keptOnly = 'kept in the event log with your name'

const chosen = {
  name: projection().optional(),
  all: flag({ label: 'All', help: 'every projection' }),
}

type Chosen = { readonly name?: string | undefined; readonly all: boolean }

const named = (name: string): Projection => {
  const found = projections.find((one) => one.name === name)
  if (found === undefined) throw new Error(`the projection ${name} does not exist`)
  return found
}

const chosenOf = ({ name, all }: Chosen): readonly Projection[] => {
  if (name !== undefined && all) throw new InputFault('all', `choose ${name} or all projections, not both`)
  return name === undefined ? projections : [named(name)]
}

/** Rebuilding all projections must be requested explicitly, because it can take hours. */
const chosenOrAll = (input: Chosen): readonly Projection[] => {
  if (input.name === undefined && !input.all)
    throw new InputFault('name', `give a projection, or --all; the projections are ${names.join(', ')}`)
  return chosenOf(input)
}

const listProjections = query({
  name: 'projection list',
  action: 'system.read',
  summary: 'show the position of every projection and its lag behind the event log',
  input: z.object({ name: projection().optional() }),
  anyHistory: true,
  columns: [
    { name: 'name', label: 'Projection', kind: 'name' },
    { name: 'version', label: 'Version', kind: 'number' },
    { name: 'state', label: 'State' },
    { name: 'position', label: 'Position', kind: 'number' },
    { name: 'behind', label: 'Behind', kind: 'number' },
    { name: 'parked', label: 'Events set aside', kind: 'number' },
    { name: 'halted_streams', label: 'Streams halted' },
    { name: 'updated_at', label: 'Updated (UTC)', kind: 'instant' },
    { name: 'error', label: 'Error', kind: 'whole' },
  ],
  nextOfRow: [
    { name: 'projection rebuild', label: 'Rebuild', given: ({ name }) => ({ name }) },
    {
      name: 'projection parked',
      label: 'Events set aside',
      given: ({ name, parked }) => (parked === 0 ? null : { name }),
    },
  ],
  run: async ({ foundation }, { name }) => {
    const { states } = await projectionStates(foundation)
    const listed = states
      .filter((one) => name === undefined || one.name === name)
      .map(({ haltedStreams, updatedAt, ...state }) => ({
        ...state,
        halted_streams: haltedStreams.map(({ stream, position: at, error }) => ({
          stream,
          position: at.toString(),
          error,
        })),
        updated_at: updatedAt,
      }))
    return {
      json: listed,
      failed: listed.some(({ state, halted_streams }) => state === 'halted' || halted_streams.length > 0),
    }
  },
})

const rebuildProjection = command({
  name: 'projection rebuild',
  action: 'projections.change',
  long: 'repeatable',
  summary:
    'rebuild projections from the event log; readers see the old rows until the switch to the new ones',
  input: z.object({
    ...chosen,
    reason: reason({ help: keptOnly }).prefault('requested by operator'),
    anew: flag({
      label: 'From the start',
      help: 'begin at the start of the log instead of continuing a killed rebuild',
    }),
    accept_loss: line({
      label: 'Accepted loss',
      help: 'for a log that was restored or has lost events: the digest, shown by the rebuild, of the facts that only the rows contain; without it, these facts are not discarded',
    }).optional(),
  }),
  anyHistory: true,
  anyEventLog: ({ all }) => all === true || all === 'true' || all === 'on',
  changes: { of: 'rows', asks: 'on a terminal' },
  plan: async (_, input) =>
    `Rebuild ${namesOf(chosenOrAll(input))} from the event log, and switch if their totals match the log.`,
  run: async (context, input) => {
    const { foundation, operator, logger } = context
    const of = chosenOrAll(input)
    const rebuilt = await rebuild(foundation, {
      projections: of,
      reason: input.reason,
      actor: operator.actor,
      logger,
      anew: input.anew,
      mayForget: async (lost) => accepted(lost, input.accept_loss),
      onProgress: reporter(of, context),
    })
    const { rebuildId, events, elapsedMs, resumed, differences } = rebuilt
    const seconds = Math.round(elapsedMs) / 1000
    return {
      json: {
        rebuild_id: rebuildId,
        projections: of.map(({ name, version }) => ({ name, version })),
        events,
        seconds,
        events_per_second: rateOf(events, elapsedMs),
        resumed,
        differences,
      },
      lines: [
        `rebuilt ${namesOf(of)} from ${events} events in ${seconds} s${resumed ? ', continuing a killed rebuild' : ''}`,
        ...differences.map(differenceLine),
        ...(differences.length === 0
          ? []
          : ['The old rows that differ were wrong: the new rows have the totals of the event log.']),
      ],
    }
  },
})

const differenceLine = ({
  projection: of,
  organization_id,
  figure,
  live,
  rebuilt,
}: TotalDifference): string => {
  const shown = (amount: string | null): string =>
    amount === null ? 'nothing' : figure === 'lines' ? amount : formatCredits(BigInt(amount))
  return `DIFFERENT  ${of}  ${organization_id}  ${figure}: ${shown(live)} before, ${shown(rebuilt)} now`
}

const lostMax = 1_000

/** Throws a `NeedsConsent` that lists what would be lost, unless `digest` is the digest of exactly this list. */
const accepted = (lost: readonly OnlyInRows[], digest: string | undefined): boolean => {
  if (lost.length === 0) return true
  const now = lossDigest(lost)
  if (digest === now) return true
  throw new NeedsConsent({ field: 'accept-loss', value: now }, [
    ...(digest === undefined ? [] : [`The given digest (${digest}) is not the digest of the current loss.`]),
    'The event log was restored from an older copy, was replaced, or has lost events. Only the rows contain the following facts, and the rebuild discards them:',
    ...lost.slice(0, lostMax).map(lostLine),
    ...(lost.length > lostMax ? [`  and ${lost.length - lostMax} more`] : []),
    `The digest of this list is ${now}.`,
    'Until you repeat the listed changes, revoked keys work again, erased people are no longer erased, and balances are those of the log.',
  ])
}

const lostLine = ({ kind, what, organization_id, at, amount_micro }: OnlyInRows): string => {
  const amount = amount_micro === null ? null : creditsText(formatCredits(BigInt(amount_micro)))
  return [`  ${kind}`, what, organization_id, at, amount].filter((part) => part !== null).join('  ')
}

const cancelRebuild = command({
  name: 'projection cancel',
  action: 'projections.change',
  summary: 'cancel running rebuilds in any process; the live rows do not change',
  input: z.object(chosen),
  anyHistory: true,
  changes: { of: 'rows', asks: 'on a terminal' },
  plan: async ({ foundation }, input) => {
    const of = chosenOrAll(input).map(({ name }) => name)
    const running = (await rebuilds(foundation)).filter(
      (one) => one.state === 'running' && one.projections.some((name) => of.includes(name)),
    )
    return running.length === 0
      ? `No rebuild of ${of.join(', ')} is running. If a rebuild was killed, its partial result is dropped.`
      : `End ${running.map((one) => `the rebuild of ${one.projections.join(', ')} that ${one.actor} began`).join(', and ')}: its partial result is dropped, and the live rows do not change.`
  },
  run: async ({ foundation, operator: { actor } }, input) => {
    const of = chosenOrAll(input)
    return { json: { cancelled: await cancelRebuilds(foundation, { projections: of, actor }) } }
  },
})

const listRebuilds = query({
  name: 'projection rebuilds',
  action: 'system.read',
  summary: 'list the newest rebuilds: requested by, progress, outcome',
  input: z.object({}),
  anyHistory: true,
  columns: [
    { name: 'rebuild_id', label: 'Rebuild', kind: 'id' },
    { name: 'state', label: 'State' },
    { name: 'position', label: 'Position', kind: 'number' },
    { name: 'target', label: 'Target', kind: 'number' },
    { name: 'events', label: 'Events', kind: 'number' },
    { name: 'events_per_second', label: 'Events/s', kind: 'number' },
    { name: 'started_at', label: 'Started (UTC)', kind: 'instant' },
    { name: 'ended_at', label: 'Ended (UTC)', kind: 'instant', below: 'started_at' },
    { name: 'actor', label: 'Requested by' },
    { name: 'reason', label: 'Reason', below: 'actor' },
    { name: 'projections', label: 'Projections' },
    { name: 'error', label: 'Error', kind: 'whole', sparse: true },
  ],
  nextOfRow: [
    {
      name: 'projection cancel',
      label: 'Cancel',
      given: ({ state, projections }) =>
        state === 'running' && Array.isArray(projections) ? { name: String(projections[0]) } : null,
    },
  ],
  run: async ({ foundation }) => ({ json: await rebuilds(foundation) }),
})

const verifyProjection = query({
  name: 'projection verify',
  action: 'system.read',
  summary: 'rebuild projections next to the live ones, and compare the rows',
  long: 'repeatable',
  input: z.object(chosen),
  columns: [
    { name: 'name', label: 'Projection', kind: 'name' },
    { name: 'ok', label: 'Identical' },
    { name: 'position', label: 'Position', kind: 'number' },
    { name: 'rows', label: 'Rows', kind: 'number' },
    { name: 'differences', label: 'Differences' },
  ],
  run: async (context, input) => {
    const { foundation, logger } = context
    const of = chosenOf(input)
    await catchUp(foundation, logger)
    const verdicts = await verifyProjections({
      url: foundation.url,
      eventLog: foundation.eventLog,
      seal: foundation.secrets.rowSeal,
      projections: of,
      onProgress: reporter(of, context),
    })
    const verified = verdicts.map(({ name, position: at, rows, differences }) => ({
      name,
      ok: differences.length === 0,
      position: at.toString(),
      rows,
      differences: differences.map(({ table, live, rebuilt, onlyLive, onlyRebuilt }) => ({
        table,
        live_rows: live,
        rebuilt_rows: rebuilt,
        only_live: onlyLive,
        only_rebuilt: onlyRebuilt,
      })),
    }))
    return {
      json: verified,
      failed: verified.some(({ ok }) => !ok),
    }
  },
})

/** Projections about money or access must not skip an event. */
const maySkip = (name: string): boolean => {
  const { money, guards } = named(name)
  return !money && guards !== true
}

const listParked = query({
  name: 'projection parked',
  action: 'system.read',
  summary: 'list the events that could not be folded, with their errors',
  input: z.object({ name: projection().optional() }),
  anyHistory: true,
  columns: [
    { name: 'projection', label: 'Projection', kind: 'name' },
    { name: 'position', label: 'Position', kind: 'position' },
    { name: 'stream', label: 'Stream', kind: 'id' },
    { name: 'type', label: 'Event' },
    { name: 'state', label: 'State' },
    { name: 'error', label: 'Error', kind: 'whole' },
    { name: 'parked_at', label: 'Since (UTC)', kind: 'instant' },
    { name: 'released_by', label: 'Released by' },
    { name: 'reason', label: 'Reason' },
  ],
  empty: 'No events are set aside',
  nextOfRow: [
    {
      name: 'projection retry',
      label: 'Retry',
      given: ({ projection, state }) => (state === 'released' ? null : { name: projection }),
    },
    {
      name: 'projection release',
      label: 'Skip',
      given: ({ projection, position, state }) =>
        state === 'released' || !maySkip(String(projection)) ? null : { name: projection, position },
    },
  ],
  run: async ({ foundation }, { name = null }) => {
    const rows = await parkedEvents(foundation, name)
    return { json: rows, failed: rows.some(({ state }) => state !== 'released') }
  },
})

const retryProjection = command({
  name: 'projection retry',
  action: 'projections.change',
  summary: 'rebuild a projection if this release can read the events that were set aside',
  input: z.object({ name: projection() }),
  changes: { of: 'rows', asks: 'on a terminal' },
  plan: async ({ foundation }, { name }) => {
    const waiting = (await parkedEvents(foundation, name)).filter(({ state }) => state !== 'released')
    return waiting.length === 0
      ? `Nothing to retry: no event of ${name} is set aside.`
      : `Rebuild ${name} if this release can read the ${waiting.length} events that were set aside, and switch.`
  },
  run: async (context, { name }) => {
    const { waiting, unreadable, left } = await retryParked(context.foundation, {
      projection: named(name),
      actor: context.operator.actor,
      logger: context.logger,
      mayForget: async () => false,
      onProgress: reporter([named(name)], context),
    })
    const isUnread = unreadable.length > 0
    return {
      json: {
        name,
        retried: isUnread ? 0 : waiting.length,
        unreadable,
        left: left.map(({ parked_at, ...one }) => ({ ...one, parked_at: parked_at.toISOString() })),
        ...(isUnread && { note: 'Nothing was changed: run a release that can read these events.' }),
      },
      failed: left.length > 0,
    }
  },
})

const releaseProjection = command({
  name: 'projection release',
  action: 'projections.change',
  summary: 'let a projection skip an event permanently; not possible for money or keys',
  input: z.object({
    name: projection(),
    position: position({ label: 'Position', help: 'position of the event, as in "projection parked"' }),
    reason: reason({ help: keptOnly }),
  }),
  changes: { of: 'rows', asks: 'always' },
  plan: async ({ foundation }, { name, position: at }) => {
    const found = (await parkedEvents(foundation, name)).find((one) => BigInt(one.position) === at)
    const what = found === undefined ? '' : `, a ${found.type} of ${found.stream}`
    return `Let ${name} skip the event at position ${at}${what} permanently.`
  },
  run: async ({ foundation, operator: { actor } }, { name, position: at, reason: why }) => {
    await releaseParked(foundation, { projection: named(name), position: at, reason: why, actor })
    return {
      json: { name, position: at.toString(), reason: why },
      lines: [`${name} skips the event at position ${at}`],
    }
  },
})

export const declarations = [
  listProjections,
  rebuildProjection,
  cancelRebuild,
  listRebuilds,
  verifyProjection,
  listParked,
  retryProjection,
  releaseProjection,
]
