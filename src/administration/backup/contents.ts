/** The contents of a backup's entries. */
import { z } from 'zod'
import { type InstallationKey, shortHmac } from '../../guard/secrets/secrets.ts'

export const manifestName = 'backup.json'
export const digestsName = 'digests.json'

const format = 1
const sha256 = z.string().regex(/^[0-9a-f]{64}$/)
const position = z.string().regex(/^\d{1,20}$/)
/** Of the last event, with a digest of everything known about it; null if the log is empty. */
const place = z.object({ position, digest: z.string().max(64).nullable() })

/** The first entry: everything needed to decide whether the rest can be accepted. */
export const manifestSchema = z.object({
  format: z.literal(format),
  backup_id: z.uuid(),
  made_at: z.iso.datetime(),
  release: z.string().max(64),
  /** The number of the last migration: the tables have its shape. */
  migration: z.int().positive(),
  /** Identifies the event log, without secrets. */
  event_log: z.string().max(2_000),
  /** Whether the backup contains the event log. An EventStoreDB's log is not included. */
  holds_log: z.boolean(),
  /** The end of the event log. */
  head: place,
  /** The installation key, wrapped: the SECRET_KEY of any slot opens it, and with it the backup. */
  installation_key: z
    .array(z.object({ secret_key: z.string().max(64), wrapped: z.string().max(256) }))
    .min(1)
    .max(2),
  /** Keys in KEY_DIR that were used to seal values. */
  epoch_keys: z.array(z.string().max(32)).max(10_000),
  /** In the order of the file. */
  tables: z
    .array(z.object({ name: z.string().max(63), columns: z.array(z.string().max(63)).min(1) }))
    .max(1_000),
})
export type Manifest = z.infer<typeof manifestSchema>
export const manifestFormat = format

/** The last entry. */
export const digestsSchema = z.object({
  entries: z.array(z.object({ name: z.string().max(255), sha256 })),
  rows: z.record(z.string(), z.int().nonnegative()),
  /** Of the above, under a key derived from the installation key: without it no one can make a file that we would accept. */
  mac: z.string().max(64),
})
export type Digests = z.infer<typeof digestsSchema>

/** Authenticates the digests, and through them the whole file. */
export const macOf = (key: InstallationKey, { entries, rows }: Omit<Digests, 'mac'>): string =>
  shortHmac(key.derive('backup'))(JSON.stringify([entries, Object.entries(rows)]))

export const chunkName = (table: string, number: number): string =>
  `tables/${table}/${String(number).padStart(6, '0')}.zst`

/** Null for an entry that holds no rows. */
export const tableOfChunk = (name: string): string | null =>
  /^tables\/([a-z0-9_]+)\/\d{6,}\.zst$/.exec(name)?.[1] ?? null
