import { z } from 'zod'
import { type InstallationKey, shortHmac } from '../../guard/secrets/secrets.ts'

export const manifestName = 'backup.json'
export const digestsName = 'digests.json'

export const manifestFormat = 1
const sha256 = z.string().regex(/^[0-9a-f]{64}$/)
const position = z.string().regex(/^\d{1,20}$/)
/** The position of the log's last event, and a digest of that event; the digest is null if the log is empty. */
const place = z.object({ position, digest: z.string().max(64).nullable() })

/** The first entry of the file. It contains everything needed to decide whether the backup can be accepted. */
export const manifestSchema = z.object({
  format: z.literal(manifestFormat),
  backup_id: z.uuid(),
  made_at: z.iso.datetime(),
  release: z.string().max(64),
  /** The number of the last migration. It determines the columns of the tables. */
  migration: z.int().positive(),
  /** Identifies the event log, without secrets. */
  event_log: z.string().max(2_000),
  /** Whether the backup contains the event log. False if the log is in EventStoreDB. */
  holds_log: z.boolean(),
  head: place,
  /** The wrapped installation key. The SECRET_KEY of any slot unwraps it. */
  installation_key: z
    .array(z.object({ secret_key: z.string().max(64), wrapped: z.string().max(256) }))
    .min(1)
    .max(2),
  /** The ids of the keys in KEY_DIR that were used to seal values. */
  epoch_keys: z.array(z.string().max(32)).max(10_000),
  /** The tables, in the order in which the file contains them. */
  tables: z
    .array(z.object({ name: z.string().max(63), columns: z.array(z.string().max(63)).min(1) }))
    .max(1_000),
})
export type Manifest = z.infer<typeof manifestSchema>

/** The last entry of the file. */
export const digestsSchema = z.object({
  entries: z.array(z.object({ name: z.string().max(255), sha256 })),
  rows: z.record(z.string(), z.int().nonnegative()),
  /** Authenticates `entries` and `rows` with a key derived from the installation key, so only this installation can make a valid file. */
  mac: z.string().max(64),
})
export type Digests = z.infer<typeof digestsSchema>

/** Authenticates the digests, and so the whole file. */
export const macOf = (key: InstallationKey, { entries, rows }: Omit<Digests, 'mac'>): string =>
  shortHmac(key.derive('backup'))(JSON.stringify([entries, Object.entries(rows)]))

export const chunkName = (table: string, number: number): string =>
  `tables/${table}/${String(number).padStart(6, '0')}.zst`

/** The table whose rows an entry contains; null for other entries. */
export const tableOfChunk = (name: string): string | null =>
  /^tables\/([a-z0-9_]+)\/\d{6,}\.zst$/.exec(name)?.[1] ?? null
