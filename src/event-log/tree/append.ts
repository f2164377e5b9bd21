import { randomUUID } from 'node:crypto'
import type { DomainEventOf } from '../../events/catalogue.ts'
import { checkpointStream } from '../../events/streams.ts'
import { appendChained } from '../append-chained.ts'
import { AppendConflict, type EventLog } from '../port.ts'
import { encodeEvent, eventIdOf } from '../stored-event.ts'
import { announcementText, type CheckpointStream } from './checkpoint-stream.ts'
import type { SigningKey } from './signing-key.ts'

/** Appends to the stream `checkpoint` directly after the events that were read, so that only one of several processes succeeds. */

export type Keyed = {
  readonly key: string
  readonly event: DomainEventOf<'SigningKeyAnnounced' | 'LogTreeBegun' | 'LogCheckpointed'>
}

/** The event that announces a signing key. It is signed by the previous key, if that is available. */
export const announcementOf = (
  key: Pick<SigningKey, 'id' | 'publicKey'>,
  {
    previous,
    actor,
    reason,
  }: {
    /** The previous key. Null: this is the first key. If `key` is null, the previous key is lost. */
    readonly previous: { readonly id: string; readonly key: SigningKey | null } | null
    readonly actor: string
    readonly reason: string | null
  },
): Keyed => {
  const announced = {
    key_id: key.id,
    public_key: key.publicKey.toString('base64url'),
    previous_key_id: previous?.id ?? null,
  }
  const signature = previous?.key?.sign(announcementText(announced)).toString('base64url') ?? null
  return {
    key: `key/${key.id}`,
    event: { type: 'SigningKeyAnnounced', data: { ...announced, signature, announced_by: actor, reason } },
  }
}

/** The event that begins a new tree, with a globally unique name. */
export const treeBegun = (previousNote: string | null): Keyed => {
  const origin = `enrichment-ledger/${randomUUID()}`
  return {
    key: `tree/${origin}`,
    event: { type: 'LogTreeBegun', data: { origin, previous_note: previousNote } },
  }
}

/** Returns false if another process has appended first. */
export const appendedTo = async (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  stream: Pick<CheckpointStream, 'revision'>,
  events: readonly Keyed[],
  actor = 'system',
): Promise<boolean> => {
  const effectiveAt = new Date().toISOString()
  const encoded = events.map(({ key, event }) =>
    encodeEvent(event, { id: eventIdOf(checkpointStream, key, 0), actor, effectiveAt }),
  )
  try {
    await appendChained(
      eventLog,
      checkpointStream,
      stream.revision === -1 ? 'none' : stream.revision,
      encoded,
    )
    return true
  } catch (error) {
    if (error instanceof AppendConflict) return false
    throw error
  }
}
