import { type AuditFilter, type AuditRow, auditPage } from '../../../projections/audit.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import { auditedTypes, isAudited } from '../../events/audited.ts'
import { organizationOfStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { nearest } from '../../foundation/nearest.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { readCheckpoints } from '../../projector/checkpoints.ts'
import { InputFault, instantOf } from '../input.ts'
import { auditSentence } from './audit-sentences.ts'

/**
 * Who changed what. The rows of the projection `audit` say where the events are; the content of each is read from the event log, so
 * a forged row cannot report an event that never happened.
 */

export type AuditEntry = {
  /** When it was recorded, by the writer's clock. */
  readonly at: string
  readonly actor: string
  readonly type: string
  readonly says: string
  /** The organization whose ledger it is in; null for any other stream. */
  readonly organizationId: string | null
  readonly about: readonly string[]
  readonly stream: string
  /** Null if the event log does not contain the event. */
  readonly revision: number | null
  readonly position: string
}

const textMax = 200

/** The filter as typed: empty and undefined mean everything. Throws `InputFault`. */
export const auditFilterOf = (typed: {
  readonly since: string | undefined
  readonly actor: string | undefined
  readonly about: string | undefined
  readonly type: string | undefined
  readonly oldestFirst: boolean
}): AuditFilter => ({
  since: typed.since === undefined ? null : instantOf('since', typed.since),
  actors: actorsOf(textOf('actor', typed.actor)),
  about: textOf('about', typed.about),
  type: typed.type === undefined ? null : typeOf(typed.type),
  oldestFirst: typed.oldestFirst,
})

const typeOf = (text: string): string => {
  if (auditedTypes.includes(text)) return text
  const meant = nearest(text, auditedTypes)
  throw new InputFault(
    'type',
    `"${text}" is no type of event that is told here${meant === null ? '' : `; is ${meant} meant?`}`,
  )
}

const textOf = (name: string, text: string | undefined): string | null => {
  if (text === undefined) return null
  // PostgreSQL accepts no text with U+0000, and no event has a subject that long.
  if (text === '' || text.length > textMax || text.includes('\0'))
    throw new InputFault(name, `1 to ${textMax} characters are expected`)
  return text
}

/** `ada` matches the person, the label and the key of that name; `user:ada` only the person. */
const actorsOf = (text: string | null): string[] | null =>
  text === null ? null : text.includes(':') ? [text] : [text, `user:${text}`, `cli:${text}`, `key:${text}`]

const pageMax = 200
/** Concurrent reads of the event log. */
const readsMax = 8

/**
 * Entries in the requested order, at most `max`, after the entry at the position `after`; holds at most one page of them in memory.
 * Throws `CommandRefused` if the rows have stopped.
 */
export async function* auditEntries(
  { pool, eventLog }: Pick<Foundation, 'pool' | 'eventLog'>,
  filter: AuditFilter,
  { max, after: from = null }: { readonly max: number; readonly after?: string | null },
): AsyncGenerator<AuditEntry> {
  const own = (await readCheckpoints(pool)).find(({ name }) => name === 'audit')
  if (own?.state === 'halted')
    throw new CommandRefused(`the rows of the audit stopped (${own.error}): "projection rebuild audit"`)
  let after = from
  for (let left = max; left > 0; ) {
    const { text, values } = auditPage(filter, { after, max: Math.min(left, pageMax) })
    const { rows } = await pool.query<AuditRow>(text, [...values])
    for (let i = 0; i < rows.length; i += readsMax)
      yield* await Promise.all(rows.slice(i, i + readsMax).map((row) => entryOf(eventLog, row)))
    left -= rows.length
    after = rows.at(-1)?.position ?? null
    if (rows.length < pageMax) return
  }
}

/** How many events the rows leave out because they cannot be read. */
export const auditLeftOut = async ({ pool }: Pick<Foundation, 'pool'>): Promise<number> => {
  const { rows } = await pool.query<{ n: number }>(
    `select count(*)::int as n from parked_events where projection = 'audit' and released_at is null`,
  )
  return rows[0]?.n ?? 0
}

const entryOf = async (eventLog: Foundation['eventLog'], row: AuditRow): Promise<AuditEntry> => {
  const event = await eventLog.at(BigInt(row.position))
  const { stream, type, about, position } = row
  const organizationId = organizationOfStream(stream)
  const entry = { type, organizationId, about, stream, position }
  if (event === null || event.type !== type || event.stream !== stream)
    return {
      ...entry,
      at: row.at.toISOString(),
      actor: row.actor,
      revision: null,
      says: 'the event log does not hold this event: a row says so alone',
    }
  const { metadata, ...domain } = decodeEvent(event)
  return {
    ...entry,
    at: metadata.recorded_at,
    actor: metadata.actor,
    revision: event.revision,
    says: isAudited(domain) ? auditSentence(domain) : `is no change by anyone: a row says so alone`,
  }
}
