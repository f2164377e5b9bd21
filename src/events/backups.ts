import { z } from 'zod'
import { uuid } from './primitives.ts'

/** Backups of an installation: that a backup was made, and that this installation was restored from one. */

const position = z.string().regex(/^\d{1,20}$/)
const sha256 = z.string().regex(/^[0-9a-f]{64}$/)

/** `position`: the last position of the event log. */
export const backupCreatedV1 = z.object({
  backup_id: uuid,
  position,
  bytes: z.int().nonnegative(),
  sha256,
})

/** Changes after `position`, in the installation the backup was made of, are not in this one. `files`: their digests, the newest 32. */
export const backupRestoredV1 = z.object({
  backup_id: uuid,
  made_at: z.iso.datetime(),
  position,
  files: z.array(sha256).min(1).max(32),
})
