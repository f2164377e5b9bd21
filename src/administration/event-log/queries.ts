import { z } from 'zod'
import { readingOf } from '../../event-log/event-reading.ts'
import {
  EventsUnreadable,
  isStreamName,
  positionMax,
  type RecordedEvent,
  StreamMissing,
} from '../../event-log/port.ts'
import type { ChainLink } from '../../event-log/verify/page-chain.ts'
import type { LogVerdict } from '../../event-log/verify/verify-log.ts'
import { auditedTypes } from '../../events/audited.ts'
import { catalogue } from '../../events/catalogue.ts'
import { organizationOfStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { type Next, type Page, pagedList, pageUpTo, query, type Sections } from '../declare.ts'
import { anyText, choice, flag, instant, line, manyLines, number } from '../fields.ts'
import { InputFault, wholeNumber } from '../input.ts'
import { auditEntries } from './audit.ts'
import { type ListedCheckpoint, listCheckpoints, orRefused, verifyEventLog } from './checkpoints.ts'
import { eventJson } from './event-json.ts'
import { type EventPage, eventPage, newestEvents, streamPage } from './event-pages.ts'

const audit = pagedList({
  name: 'audit list',
  action: 'audit.read',
  summary: 'list all changes and sign-ins with their authors; calls are not included',
  input: z.object({
    since: instant({
      label: 'Since (UTC)',
      help: 'recorded at this instant or later, such as 2027-01-31',
    }).optional(),
    actor: line({
      label: 'By',
      help: 'only this actor, such as ada, or user:ada as shown in the list',
    }).optional(),
    about: line({
      label: 'About',
      help: 'only changes to this: an organization, key or webhook (by its id), a user, or a projection',
    }).optional(),
    type: choice(
      { label: 'Type', help: 'only events of this type, such as CreditGranted' },
      auditedTypes,
    ).optional(),
    oldest_first: flag({
      label: 'Oldest first',
      help: 'show the oldest entries first instead of the newest',
    }),
  }),
  columns: [
    { name: 'at', label: 'When (UTC)', kind: 'instant' },
    { name: 'actor', label: 'By' },
    { name: 'says', label: 'Description' },
    { name: 'organization_id', label: 'Organization', kind: 'organization' },
    { name: 'position', label: 'Position', kind: 'position' },
  ],
  page: async ({ foundation, caughtUp }, { since, actor, about, type, oldest_first }, stretch) => {
    const { cursor: after, max } = stretch
    if (after !== null) positionAt(after)
    await caughtUp()
    const filter = {
      since: since ?? null,
      actors: actor === undefined ? null : actorsOf(actor),
      about: about ?? null,
      type: type ?? null,
      oldestFirst: oldest_first,
    }
    const entries = await Array.fromAsync(auditEntries(foundation, filter, { max: max + 1, after }))
    const rows = entries.map(({ organizationId, ...entry }) => {
      const { at, actor, type, says, about, stream, revision, position } = entry
      return { at, actor, type, says, organization_id: organizationId, about, stream, revision, position }
    })
    return pageUpTo(rows, { max, cursor: 'position', lacks: await auditLacks(foundation) })
  },
})

/** Throws `InputFault` if the cursor is not a position of the event log. */
const positionAt = (cursor: string): bigint => {
  if (/^\d{1,19}$/.test(cursor) && BigInt(cursor) <= positionMax) return BigInt(cursor)
  throw new InputFault('cursor', `"${cursor}" is not a position of the event log`)
}

const auditLacks = async ({ pool }: Pick<Foundation, 'pool'>): Promise<string | null> => {
  const { rows } = await pool.query<{ n: number }>(
    `select count(*)::int as n from parked_events where projection = 'audit' and released_at is null`,
  )
  const [{ n } = { n: 0 }] = rows
  return n === 0
    ? null
    : `${n === 1 ? '1 event is' : `${n} events are`} missing here, because this release cannot read ${n === 1 ? 'it' : 'them'}: see "projection parked audit"`
}

/** A name such as `ada` matches the user, the label and the key with this name; `user:ada` matches only the user. */
const actorsOf = (actor: string): string[] =>
  actor.includes(':') ? [actor] : [actor, `user:${actor}`, `cli:${actor}`, `key:${actor}`]

/** Enough characters for a category and an id. */
const streamLengthMax = 140
export const isStream = (name: string): boolean => name.length <= streamLengthMax && isStreamName(name)

const streamField = () => anyText({ label: 'Stream', help: 'its name, such as ledger-org_01J… or pricebook' })

const streamOf = (stream: string): string => {
  if (isStream(stream)) return stream
  throw new InputFault(
    'stream',
    `"${stream.slice(0, 80)}" is not the name of a stream, such as ledger-org_01J… or operator`,
  )
}

const missingStream = (stream: string) => new CommandRefused(`there is no stream ${stream}`)

const listEvents = pagedList({
  name: 'event-log list',
  action: 'system.read',
  summary: 'list the events of the log or of a stream, newest first; for a stream, its hash chain is checked',
  input: z.object({
    stream: streamField().optional(),
    type: choice(
      { label: 'Type', help: 'only events of this type, such as CreditGranted' },
      Object.keys(catalogue),
    ).optional(),
  }),
  anyHistory: true,
  columns: [
    { name: 'position', label: 'Position', kind: 'position' },
    { name: 'stream', label: 'Stream', kind: 'stream' },
    { name: 'revision', label: 'Revision', kind: 'number' },
    { name: 'type', label: 'Event' },
    { name: 'recorded_at', label: 'Recorded (UTC)', kind: 'instant' },
    { name: 'chain', label: 'Chain' },
  ],
  next: [
    { name: 'event-log verify', label: 'Verify the event log' },
    { name: 'event-log checkpoints', label: 'Checkpoints' },
  ],
  page: ({ foundation: { eventLog } }, { stream, type = null }, { cursor, max }) =>
    stream === undefined
      ? pageOfLog(eventLog, { before: cursor === null ? null : positionAt(cursor), type, max })
      : pageOfStream(eventLog, {
          stream: streamOf(stream),
          type,
          max,
          before: cursor === null ? null : wholeNumber('cursor', cursor, revisions),
        }),
})

const revisions = { min: 0, max: Number.MAX_SAFE_INTEGER }

const eventRow = ({ position, stream, revision, type, recordedAtMs, id }: RecordedEvent) => ({
  position: String(position),
  stream,
  revision,
  type,
  recorded_at: new Date(recordedAtMs).toISOString(),
  event_id: id,
})

const pageOfLog = async (...asked: Parameters<typeof newestEvents>): Promise<Page> => {
  const { events, unreadable, next } = await newestEvents(...asked)
  return {
    rows: events.map(eventRow),
    next: next === null ? null : String(next),
    lacks: unreadable.length === 0 ? null : unreadable.map(({ message }) => message).join('; '),
  }
}

const pageOfStream = async (...asked: Parameters<typeof streamPage>): Promise<Page> => {
  const found = await streamPage(...asked)
  if (found === null) throw missingStream(asked[1].stream)
  const { events, links, unreadable, next } = found
  const [broken, ...others] = links.filter(({ state }) => state === 'broken')
  const faults = [
    ...(broken === undefined
      ? []
      : [`the chain is ${chainText(broken)}${others.length === 0 ? '' : `, and at ${others.length} more`}`]),
    ...(unreadable === null ? [] : [unreadable.message]),
  ]
  return {
    rows: events.map(({ event, link }) => ({ ...eventRow(event), chain: chainText(link) })),
    next: next === null ? null : String(next),
    lacks: faults.length === 0 ? null : faults.join('; '),
  }
}

/** About as many events as fit on a terminal. */
const newestMax = 20

const show = query({
  name: 'event-log show',
  action: 'system.read',
  summary: "show one event of a stream, or the stream's newest 20",
  input: z.object({
    stream: streamField(),
    revision: number(
      { label: 'Revision', help: 'only this event; the first of a stream is 0' },
      revisions,
    ).optional(),
  }),
  anyHistory: true,
  columns: [
    { name: 'revision', label: 'Revision', kind: 'number' },
    { name: 'recorded_at', label: 'Recorded (UTC)', kind: 'instant' },
    { name: 'type', label: 'Type' },
    { name: 'event_id', label: 'Event', kind: 'id' },
  ],
  run: async ({ foundation: { eventLog } }, { stream, revision }) => {
    const name = streamOf(stream)
    try {
      if (revision === undefined)
        return eventsAnswer(
          (await eventLog.read(name, { direction: 'backwards', max: newestMax })).toReversed(),
        )
      const found = await eventPage(eventLog, { stream: name, revision })
      if (found === null) throw new CommandRefused(`there is no revision ${revision} of ${stream}`)
      return { ...eventsAnswer([found.event]), sections: eventSections(found), next: eventsAround(found) }
    } catch (error) {
      if (error instanceof StreamMissing) throw missingStream(stream)
      if (error instanceof EventsUnreadable) throw new CommandRefused(error.message)
      throw error
    }
  },
})

const eventsAnswer = (events: readonly RecordedEvent[]) => ({
  json: events.map(eventJson),
  lines: events.flatMap((event) => [
    `${event.revision}  ${new Date(event.recordedAtMs).toISOString()}  ${event.type}  ${event.id}`,
    `    data      ${event.data}`,
    `    metadata  ${event.metadata}`,
  ]),
})

const checkpoints = query({
  name: 'event-log checkpoints',
  action: 'system.read',
  summary: 'list the newest checkpoints, newest first',
  input: z.object({
    max: number(
      { label: 'At most', help: 'maximum number of checkpoints to list' },
      { min: 1, max: 1_000 },
    ).prefault('20'),
  }),
  anyHistory: true,
  columns: [
    { name: 'recorded_at', label: 'Recorded (UTC)', kind: 'instant' },
    { name: 'size', label: 'Leaves', kind: 'number' },
    { name: 'root', label: 'Root' },
    { name: 'origin', label: 'Origin' },
  ],
  next: [
    { name: 'event-log checkpoint', label: 'Sign a checkpoint' },
    { name: 'event-log verify', label: 'Verify the event log' },
  ],
  run: async ({ foundation }, { max }) => {
    const listed = await listCheckpoints(foundation, max)
    const [newest] = listed
    return { json: listed, ...(newest !== undefined && { sections: notesOf(newest, listed) }) }
  },
})

/** People should store the newest note elsewhere, to prove later that earlier events have not changed. */
const notesOf = (newest: ListedCheckpoint, listed: readonly ListedCheckpoint[]): Sections => [
  'The newest checkpoint',
  { signed_note: newest.note },
  'Checkpoints, newest first',
  listed.map(({ recorded_at, size, root, origin }) => ({ recorded_at, leaves: size, root, origin })),
]

const consistency = query({
  name: 'event-log consistency',
  action: 'system.read',
  summary: 'prove that the last checkpoint extends an earlier one (RFC 6962)',
  input: z.object({
    size: number(
      { label: 'Leaves', help: 'leaves of the earlier checkpoint' },
      { min: 1, max: Number.MAX_SAFE_INTEGER },
    ),
  }),
  run: async ({ foundation }, { size }) => {
    const proof = await orRefused(foundation.checkpoints.proofOfConsistency(size))
    if (proof === null) throw new InputFault('size', 'there is no checkpoint yet; see "event-log checkpoint"')
    const { root, hashes, checkpoint } = proof
    return { json: { size, root, hashes, note: checkpoint.note } }
  },
})

const noteCharactersMax = 100_000

const verify = query({
  name: 'event-log verify',
  action: 'system.read',
  summary:
    'verify every hash chain, including its end, and every signed checkpoint of the event log; shows all faults',
  input: z.object({
    against: manyLines(
      (note) => note,
      {
        label: 'Compare with a checkpoint',
        help: 'a checkpoint that was kept elsewhere; proves that this log extends that checkpoint',
      },
      { charactersMax: noteCharactersMax },
    ).optional(),
  }),
  anyHistory: true,
  long: 'repeatable',
  run: async ({ foundation, progress }, { against }) => {
    const verdict = await verifyEventLog(foundation, {
      against,
      onProgress: ({ events, position, head, elapsedMs }) =>
        progress(
          `${events} events, position ${position} of ${head}, ${Math.round((events * 1_000) / Math.max(1, elapsedMs))} events/s`,
        ),
    })
    return { json: verdictJson(verdict), failed: verdict.faults.length > 0 }
  },
})

const verdictJson = ({ events, streams, known, checkpoints, against, faults }: LogVerdict) => {
  const { recomputed, earlier, last, announced } = checkpoints
  return {
    ok: faults.length === 0,
    streams,
    events,
    known_faults: known,
    checkpoints: {
      recomputed,
      earlier_trees: earlier,
      last:
        last === null
          ? null
          : { origin: last.origin, size: last.size, root: last.root, recorded_at: last.at },
      keys_without_predecessor: announced,
    },
    against,
    faults,
  }
}

export const declarations = [audit, listEvents, show, checkpoints, consistency, verify]

/** One event for people: its content, its context, and whether it is unchanged. No event in the log can make this fail. */
const eventSections = ({ event, link, preceding, following }: EventPage): Sections => {
  const { metadata, reading } = readingOf(event)
  const { stream, revision, position, type, recordedAtMs } = event
  const organization = organizationOfStream(stream)
  const request = metadata?.request_id ?? null
  const recordedAt = new Date(recordedAtMs).toISOString()
  return [
    type,
    { stream, revision, position: String(position), recorded_at: recordedAt, chain: chainText(link) },
    'Envelope',
    {
      event_id: event.id,
      organization_id: organization ?? organizationIn(event.data),
      // Only requests of partners have a page.
      ...(ofCalls.includes(type) ? { request_id: request } : { request }),
      caused_by: metadata?.causation_id ?? null,
      repeats: metadata?.repeats ?? null,
      trace: metadata?.trace_id ?? null,
      actor: metadata?.actor ?? null,
      effective_at: metadata?.effective_at ?? null,
      recorded_at_by_the_writer: metadata?.recorded_at ?? null,
      schema_version: metadata?.schema_version ?? null,
      ...(metadata === null && {
        note: 'This release does not support this kind of metadata, so it is shown as it is stored.',
        metadata: shownText(event.metadata),
      }),
    },
    'Data',
    reading.kind === 'known'
      ? {
          ...(reading.version < reading.newest && {
            note: `The event was written with schema version ${reading.version}. This release reads it as version ${reading.newest}.`,
          }),
          as_read: shownText(JSON.stringify(reading.data, null, 2)),
          as_stored: shownText(event.data),
        }
      : {
          note: `This release cannot read this event: ${reading.why}. Its data is shown as it is stored.`,
          as_stored: shownText(event.data),
        },
    'Chain',
    {
      computed_from_the_event_and_the_digest_before_it: link.computed ?? 'not known',
      stored_in_the_event: link.carried ?? 'none',
      event_before_it:
        preceding !== null
          ? 'its digest is part of the computed digest'
          : revision === 0
            ? 'this is the first event of its stream'
            : 'it cannot be read',
      event_after_it: following === null ? 'there is no readable event yet' : chainText(following.link),
      note: 'This check does not show whether events were removed from the end, or whether the whole log was rewritten. The signed checkpoints show that.',
    },
  ]
}

const ofCalls = ['KeyUsed', 'CreditCharged']

const organizationIn = (data: string): string | null =>
  /"organization_id":"(org_(?:test_)?[0-9A-HJKMNP-TV-Z]{26})"/.exec(data)?.[1] ?? null

/** The state of a link of the chain, for people. */
const chainText = ({ revision, state, why }: ChainLink): string => {
  if (state === 'holds') return 'holds'
  return state === 'broken' ? `broken at revision ${revision}: ${why}` : `not checked: ${why}`
}

const shownCharactersMax = 65_536

/** The text with a final line break. Characters that could mislead a reader are written as JSON escapes. */
const shownText = (text: string): string => {
  const shown = text
    .slice(0, shownCharactersMax)
    .replace(
      /[^\P{C}\n]/gu,
      (character) => `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`,
    )
  const cut =
    text.length > shownCharactersMax
      ? `\n(only the first ${shownCharactersMax} of ${text.length} characters are shown)`
      : ''
  return `${shown}${cut}\n`
}

/** The events next to an event. */
const eventsAround = ({ event: { stream }, preceding, following }: EventPage): Next[] => {
  const toEvent = (label: string, of: RecordedEvent | null | undefined): Next[] =>
    of === null || of === undefined
      ? []
      : [{ name: 'event-log show', label, given: { stream: of.stream, revision: String(of.revision) } }]
  return [
    ...toEvent('Previous event of the stream', preceding),
    ...toEvent('Next event of the stream', following?.event),
    { name: 'event-log list', label: 'Events of the stream', given: { stream } },
  ]
}
