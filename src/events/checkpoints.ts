import { z } from 'zod'
import { label } from './primitives.ts'

/** The id of a key, from its bytes: the first 16 of their SHA-256, base64url. */
export const signingKeyId = z.string().regex(/^[A-Za-z0-9_-]{22}$/)

/** A position of the event log: a whole number, in decimal digits. */
const position = z.string().regex(/^(0|[1-9]\d{0,19})$/)

export const treeOrigin = z.string().regex(/^[^\s+]{1,200}$/)

/** A whole signed note, line breaks included, so that it can be kept outside unchanged. */
const note = z.string().min(1).max(10_000)

/**
 * From here on checkpoints are signed by this key (Ed25519, base64url). `signature`: the previous key's signature of the new key;
 * null for the very first key, and if an operator announces a key because the previous key is lost.
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
 * A new tree over all events of this log. `previous_note`: the last checkpoint of the log that this log was copied from, whose SHA-256 is
 * the tree's first leaf. If there was none, it is null, and the first leaf is the first event.
 */
export const logTreeBegunV1 = z.object({ origin: treeOrigin, previous_note: note.nullable() })

/** The tree over the digests of all events up to a position, signed. */
export const logCheckpointedV1 = z.object({
  origin: treeOrigin,
  size: z.int().positive(),
  root: z.string().regex(/^[A-Za-z0-9+/]{43}=$/),
  position,
  note,
})
export type LogCheckpointed = z.infer<typeof logCheckpointedV1>
