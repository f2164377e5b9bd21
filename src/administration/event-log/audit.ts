import { type AuditFilter, type AuditRow, auditPage } from '../../../projections/audit.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import { isAudited } from '../../events/audited.ts'
import { keyStream, organizationOfStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { readCheckpoints } from '../../projector/checkpoints.ts'
import { auditSentence } from './audit-sentences.ts'

/**
 * The rows of the projection `audit` only locate the events. Their content is read from the event log, so a forged row cannot report
 * an event that never happened.
 */

export type AuditEntry = {
  /** When the event was recorded, by the writer's clock. */
  readonly at: string
  readonly actor: string
  readonly type: string
  readonly says: string
  /** The organization that the event is about; null if the event is about no organization, or about all of them. */
  readonly organizationId: string | null
  readonly about: readonly string[]
  readonly stream: string
  /** Null if the event log does not contain the event. */
  readonly revision: number | null
  readonly position: string
}

const pageMax = 200
const readsMax = 32

/**
 * At most `max` entries in the requested order, after the position `after`. Throws `CommandRefused` if the rows are no longer
 * updated.
 */
export async function* auditEntries(
  { pool, eventLog }: Pick<Foundation, 'pool' | 'eventLog'>,
  filter: AuditFilter,
  { max, after: from = null }: { readonly max: number; readonly after?: string | null },
): AsyncGenerator<AuditEntry> {
  const own = (await readCheckpoints(pool)).find(({ name }) => name === 'audit')
  if (own?.state === 'halted')
    throw new CommandRefused(
      `the rows of the audit are no longer updated (${own.error}): run "projection rebuild audit"`,
    )
  let after = from
  for (let left = max; left > 0; ) {
    const rows = await rowsOf(pool, auditPage(filter, { after, max: Math.min(left, pageMax) }))
    for (let i = 0; i < rows.length; i += readsMax)
      yield* await Promise.all(rows.slice(i, i + readsMax).map((row) => entryOf(eventLog, row)))
    left -= rows.length
    after = rows.at(-1)?.position ?? null
    if (rows.length < pageMax) return
  }
}

const entryOf = async (eventLog: Foundation['eventLog'], row: AuditRow): Promise<AuditEntry> => {
  const event = await eventLog.at(BigInt(row.position))
  const { stream, type, about, position } = row
  const entry = { type, about, stream, position }
  if (event === null || event.type !== type || event.stream !== stream)
    return {
      ...entry,
      organizationId: organizationOfStream(stream),
      at: row.at.toISOString(),
      actor: row.actor,
      revision: null,
      says: 'the event log does not contain this event; only a row does',
    }
  const { metadata, ...domain } = decodeEvent(event)
  return {
    ...entry,
    organizationId: await organizationOf(eventLog, { stream, data: domain.data }),
    at: metadata.recorded_at,
    actor: metadata.actor,
    revision: event.revision,
    says: isAudited(domain)
      ? auditSentence(domain)
      : `this event is not a change; only a row claims that it is`,
  }
}

/** Later events of a key do not contain the organization, so the organization is read from the key's first event. */
const organizationOf = async (
  eventLog: Foundation['eventLog'],
  { stream, data }: { readonly stream: string; readonly data: object },
): Promise<string | null> => {
  const own = organizationOfStream(stream)
  if (own !== null) return own
  if ('organization_id' in data) return typeof data.organization_id === 'string' ? data.organization_id : null
  if (!stream.startsWith(keyStream(''))) return null
  const [first] = await eventLog.read(stream, { from: 0, max: 1 })
  const issued = first === undefined ? null : decodeEvent(first)
  return issued?.type === 'ApiKeyIssued' ? issued.data.organization_id : null
}
