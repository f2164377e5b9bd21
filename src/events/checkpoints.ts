import { z } from 'zod'
import { label } from './primitives.ts'

/** A key's id: the first 16 bytes of the SHA-256 of the key, in base64url. */
export const signingKeyId = z.string().regex(/^[A-Za-z0-9_-]{22}$/)

/** A position of the event log in decimal digits. */
const position = z.string().regex(/^(0|[1-9]\d{0,19})$/)

export const treeOrigin = z.string().regex(/^[^\s+]{1,200}$/)

/** A whole signed note, with its line breaks, so that it can be copied unchanged. */
const note = z.string().min(1).max(10_000)

/**
 * From now on, this key signs checkpoints (Ed25519, base64url). `signature` is a signature of this key by the previous
 * key. It is null for the first key, or if the previous key was lost.
 */
export const signingKeyAnnouncedV1 = z.object({
  key_id: signingKeyId,
  public_key: z.string().regex(/^[A-Za-z0-9_-]{43}$/),
  previous_key_id: signingKeyId.nullable(),
  signature: z
    .string()
    .regex(/^[A-Za-z0-9_-]{86}$/)
    .nullable(),
  announced_by: label,
  reason: label.nullable(),
})
export type SigningKeyAnnounced = z.infer<typeof signingKeyAnnouncedV1>

/**
 * Begins a new tree over all events of this log. If this log was copied from another one, `previous_note` is the last
 * checkpoint of that log, and its SHA-256 is the first leaf. If it is null, the first event is the first leaf.
 */
export const logTreeBegunV1 = z.object({ origin: treeOrigin, previous_note: note.nullable() })

/** A signed checkpoint: the root of the tree over the digests of all events up to a position. */
export const logCheckpointedV1 = z.object({
  origin: treeOrigin,
  size: z.int().positive(),
  root: z.string().regex(/^[A-Za-z0-9+/]{43}=$/),
  position,
  note,
})
export type LogCheckpointed = z.infer<typeof logCheckpointedV1>
