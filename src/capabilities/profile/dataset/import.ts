import type { Pool, PoolClient } from 'pg'
import { jsonOf, linesOf } from '../../../call/data-lines.ts'
import { inTransaction } from '../../../concurrency/transaction.ts'
import { aliasTexts, type Identifiers } from '../identifier.ts'
import { isEmptyProfile, mapProfile } from '../mapping/mapping.ts'
import { inventedPeople } from './invented-people.ts'
import { type DatasetPerson, type DatasetSecrets, sealRow } from './provider.ts'

/**
 * Imports people into the data set from JSON lines: one person per line, in our own members, with a `lid` or a profile `url`, and optionally
 * a `urn`. `"deleted": true` marks the person as deleted.
 *
 * A line replaces everything stored under its lid and its URN. A repeated import of a file changes only the import date. If an import fails,
 * finished batches remain, and a repeated import completes the rest.
 */
export type ImportReport = {
  readonly lines: number
  /** Imported lines, including those that a later line of the file replaced. */
  readonly imported: number
  readonly gone: number
  /** People who were left out because they were erased. */
  readonly suppressed: number
  readonly bad: number
  /** The first invalid lines. Reasons must not repeat the content of a line. */
  readonly badLines: readonly { readonly line: number; readonly reason: string }[]
}

export const lineBytesMax = 1024 * 1024
export const batchSizeMax = 500
const batchBytesMax = 16 * 1024 * 1024
export const badLinesReportedMax = 100

/** Returns whether each person, given by their identifiers, is suppressed. Called while the data set is locked for writing. */
export type AreSuppressed = (people: readonly (readonly string[])[]) => Promise<readonly boolean[]>

/** Rejects if the stream or the database fails. An invalid line is reported and never stops the import. */
export const importProfiles = async ({
  pool,
  secrets,
  stream,
  identifiers,
  areSuppressed,
  epochMs,
  onProgress = () => undefined,
}: {
  pool: Pick<Pool, 'connect'>
  secrets: DatasetSecrets
  /** UTF-8. A chunk can end anywhere in a line. */
  stream: AsyncIterable<Uint8Array>
  identifiers: Identifiers
  areSuppressed: AreSuppressed
  epochMs: () => number
  onProgress?: (report: ImportReport) => void
}): Promise<ImportReport> => {
  const totals = { lines: 0, imported: 0, gone: 0, suppressed: 0, bad: 0 }
  const badLines: { line: number; reason: string }[] = []
  let batch: DatasetPerson[] = []
  let batchBytes = 0
  const write = async (): Promise<void> => {
    const people = batch
    batch = []
    batchBytes = 0
    if (people.length === 0) return
    const kept = await writePeople({ pool, secrets, people, areSuppressed, importedAt: new Date(epochMs()) })
    totals.imported += kept.length
    totals.gone += kept.filter(({ data }) => data === null).length
    totals.suppressed += people.length - kept.length
    onProgress({ ...totals, badLines })
  }
  for await (const lines of linesOf(stream, lineBytesMax))
    for (const { number: line, bytes } of lines) {
      const person =
        bytes === null ? { reason: `longer than ${lineBytesMax} bytes` } : personOf(bytes, identifiers)
      if (person === undefined) continue
      totals.lines++
      if ('reason' in person) {
        totals.bad++
        if (badLines.length < badLinesReportedMax) badLines.push({ line, reason: person.reason })
        continue
      }
      batch.push(person)
      batchBytes += bytes?.length ?? 0
      if (batch.length >= batchSizeMax || batchBytes >= batchBytesMax) await write()
    }
  await write()
  return { ...totals, badLines }
}

const faults = { not_utf8: 'not UTF-8', not_json: 'not JSON' } as const

/** Undefined if the line is blank. */
const personOf = (
  bytes: Buffer,
  identifiers: Identifiers,
): DatasetPerson | { readonly reason: string } | undefined => {
  const read = jsonOf(bytes)
  if (read === undefined) return undefined
  if ('fault' in read) return { reason: faults[read.fault] }
  const mapped = mapProfile(read.value, identifiers)
  if (mapped === null) return { reason: 'not a JSON object' }
  const { lid, urn, data, deleted } = mapped
  if (lid === null) return { reason: 'no profile id: neither a valid lid nor a profile url' }
  if (deleted) return { lid, urn, data: null }
  return isEmptyProfile(data) ? { reason: 'nothing about the person' } : { lid, urn, data }
}

/** Returns the people without those that a later line replaces, because rows are unique by lid and by URN. */
const latestOf = (people: readonly DatasetPerson[]): DatasetPerson[] => {
  const taken = new Set<string>()
  const latest: DatasetPerson[] = []
  for (const person of people.toReversed()) {
    const aliases = aliasTexts(person)
    if (!aliases.some((alias) => taken.has(alias))) latest.push(person)
    // A replaced line also replaces earlier lines, as if lines were written one by one.
    for (const alias of aliases) taken.add(alias)
  }
  return latest.reverse()
}

/** Blocks all other writers, but no readers. */
const lockDataset = 'lock table profile_dataset in share row exclusive mode'
const deleteRows = 'delete from profile_dataset where lid_hmac = any($1) or urn_hmac = any($2)'
const insertRows = `
  insert into profile_dataset (lid_hmac, urn_hmac, sealed, imported_at)
  select lid_hmac, urn_hmac, sealed, $4
  from unnest($1::text[], $2::text[], $3::text[]) as given (lid_hmac, urn_hmac, sealed)`

/**
 * Writes in one transaction, so that no person is temporarily missing. A person who is suppressed before the transaction ends is not written.
 */
const writePeople = async ({
  pool,
  secrets,
  people,
  areSuppressed,
  importedAt,
}: {
  pool: Pick<Pool, 'connect'>
  secrets: DatasetSecrets
  people: readonly DatasetPerson[]
  areSuppressed: AreSuppressed
  importedAt: Date
}): Promise<readonly DatasetPerson[]> =>
  inTransaction(pool, async (client) => {
    await client.query(lockDataset)
    const suppressed = await areSuppressed(people.map(aliasTexts))
    const kept = people.filter((_, index) => suppressed[index] === false)
    await writeRows(client, kept, { importedAt, secrets })
    return kept
  })

const rowHmacsOf = (
  { lid, urn }: DatasetPerson,
  { identifierHmac }: DatasetSecrets,
): [string, string | null] => [
  identifierHmac(`lid:${lid}`),
  urn === null ? null : identifierHmac(`urn:${urn}`),
]

const writeRows = async (
  client: PoolClient,
  people: readonly DatasetPerson[],
  { importedAt, secrets }: { importedAt: Date; secrets: DatasetSecrets },
): Promise<void> => {
  await client.query(deleteRows, [
    people.map(({ lid }) => secrets.identifierHmac(`lid:${lid}`)),
    people.flatMap(({ urn }) => (urn === null ? [] : [secrets.identifierHmac(`urn:${urn}`)])),
  ])
  const latest = latestOf(people)
  const latestHmacs = latest.map((person) => rowHmacsOf(person, secrets))
  await client.query(insertRows, [
    latestHmacs.map(([lid]) => lid),
    latestHmacs.map(([, urn]) => urn),
    await Promise.all(latest.map((person, n) => sealRow(person, latestHmacs[n]?.[0] ?? '', secrets))),
    importedAt,
  ])
}

/** Adds invented people to an empty data set, so that calls to a new installation find people. Returns the number of people added. */
export const seedDatasetIfEmpty = async ({
  pool,
  ...rest
}: {
  pool: Pick<Pool, 'connect' | 'query'>
  secrets: DatasetSecrets
  identifiers: Identifiers
  areSuppressed: AreSuppressed
  epochMs: () => number
}): Promise<number> => {
  const { rows } = await pool.query('select 1 from profile_dataset limit 1')
  if (rows.length > 0) return 0
  const { imported } = await importProfiles({ pool, stream: jsonLines(inventedPeople()), ...rest })
  return imported
}

async function* jsonLines(records: Iterable<object>): AsyncGenerator<Uint8Array> {
  for (const record of records) yield Buffer.from(`${JSON.stringify(record)}\n`)
}
