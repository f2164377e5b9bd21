import { createHash } from 'node:crypto'
import { promisify } from 'node:util'
import { zstdCompress, zstdDecompress } from 'node:zlib'
import { monthClosings } from '../../../projections/audit.ts'
import {
  closableAfterMs,
  isMonth,
  type Month,
  monthAfter,
  monthBefore,
  monthStart,
} from '../../billing/months.ts'
import type { StatementLine, StatementSummary } from '../../billing/statement.ts'
import { jsonLines, type StatementForm, type StatementHead, summaryOf } from '../../billing/statement-file.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { StreamMissing } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import { ledgerStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { verifyLedger } from '../../ledger/check/verify.ts'
import { CommandRefused } from '../../ledger/command.ts'
import {
  type Months,
  monthsFrom,
  openingOf,
  readOn,
  readStatement,
  startAfter,
} from '../../ledger/months/months.ts'
import { closingOf, type MonthClosing } from '../../ledger/months/pages.ts'
import type { Write } from '../declare.ts'
import { InputFault } from '../input.ts'
import { missingLedger } from '../ledgers/ledgers.ts'

export type StatementFile = {
  readonly form: StatementForm
  readonly write: Write
}

export type MonthStatement = {
  readonly head: StatementHead
  readonly summary: StatementSummary
  /** The closing of the month, or the closing of a later month that also covers this month; null if the month is open. */
  readonly closing: MonthClosing | null
  /** The last revision of the ledger that was read for this statement. */
  readonly through: number
  /** Whether the ledger has lines in this month or before it. Otherwise, there is nothing to close. */
  readonly begun: boolean
}

/** The first members of a statement as JSON. */
export const statementHeadJson = ({ head, closing, through }: MonthStatement) => ({
  organization_id: head.organizationId,
  name: head.name,
  month: head.month,
  state: closing === null ? 'open' : 'closed',
  as_of_revision: closing === null ? through : closing.closed.through_revision,
  digest: closing?.month === head.month ? closing.closed.digest : null,
})

type StatementRequest = {
  readonly organizationId: string
  readonly month: Month
  /** Null if only the sums are needed. */
  readonly file: StatementFile | null
  readonly onLines?: ((lines: readonly StatementLine[]) => void) | undefined
  readonly onProgress?: ((events: number) => void) | undefined
}

/** Parses a month. Throws `InputFault` if the text is not one. */
export const monthOf = (field: string, text: string): Month => {
  const month = text.trim()
  if (!isMonth(month)) throw new InputFault(field, `"${text}" is not a month such as 2026-11`)
  return month
}

/** The instant from which a month can be closed. */
export const closableAt = (month: Month): number =>
  Date.parse(monthStart(monthAfter(month))) + closableAfterMs

/** Without a database, ledgers are read from their first event, and no files are stored. */
export type Reading = Pick<Foundation, 'eventLog'> & { readonly pool?: Pick<Foundation['pool'], 'query'> }

/**
 * The closings of a ledger, newest first. Rows only locate the closings in the event log. A missing row makes reading slower, but
 * does not change any figure.
 */
async function* closingsOf(
  { eventLog, pool }: Reading,
  organizationId: string,
): AsyncGenerator<MonthClosing> {
  if (pool === undefined) return
  const rows = await rowsOf(pool, monthClosings(organizationId))
  for (const { position } of rows) {
    const event = await eventLog.at(BigInt(position))
    const closing = event?.stream === ledgerStream(organizationId) ? closingOf(event) : null
    if (closing !== null) yield closing
  }
}

/** The last closing up to a month, or null. */
export const closingUpTo = async (
  foundation: Reading,
  organizationId: string,
  month: Month,
): Promise<MonthClosing | null> => {
  for await (const closing of closingsOf(foundation, organizationId))
    if (closing.month <= month) return closing
  return null
}

const knownLedger = async <Value>(organizationId: string, work: () => Promise<Value>): Promise<Value> => {
  try {
    return await work()
  } catch (error) {
    throw error instanceof StreamMissing ? missingLedger(organizationId) : error
  }
}

/** The closed months, newest first, and the entries after the last closed month. Throws `CommandRefused` if the ledger does not exist. */
export const monthsOf = (
  foundation: Reading,
  organizationId: string,
  { onProgress }: { onProgress?: (events: number) => void } = {},
): Promise<{ closed: MonthClosing[]; open: Months }> =>
  knownLedger(organizationId, async () => {
    const closed = await Array.fromAsync(closingsOf(foundation, organizationId))
    const open = monthsFrom(startAfter(closed[0] ?? null))
    await readOn(foundation.eventLog, organizationId, open, { onProgress })
    return { closed, open }
  })

/**
 * The statement of a month. For a closed month, the stored file is used if its digest matches the closing; a part that changes after
 * this check is not written. Otherwise, the file is written from the ledger. Throws `CommandRefused` if the ledger does not exist. If the
 * file written from the ledger does not match the closing either, throws `CommandRefused` at the end, so the output must not be trusted
 * before the function has returned.
 */
export const monthStatement = async (
  foundation: Reading,
  request: StatementRequest & { readonly nowMs: number },
): Promise<MonthStatement> => {
  const { organizationId, month, nowMs, file, onLines } = request
  if (Date.parse(monthStart(month)) > nowMs) throw new InputFault('month', `${month} has not begun`)
  const { pool } = foundation
  const closing = await closingUpTo(foundation, organizationId, month)
  const isStored = file === null ? onLines === undefined : file.form === jsonLines
  if (pool === undefined || closing?.month !== month || !isStored)
    return statementFromLog(foundation, request)
  const { digest } = closing.closed
  let stored = await readStored(storedParts(pool, request))
  if (stored.digest !== digest) {
    await storeStatement({ ...foundation, pool }, request)
    stored = await readStored(storedParts(pool, request))
  }
  const changed = (): CommandRefused =>
    new CommandRefused(`the stored statement of ${month} changed while it was being read: try again`)
  if (stored.digest !== digest) throw changed()
  if (file !== null) {
    let parts = 0
    for await (const part of storedParts(pool, request)) {
      const lines = await part.lines
      if (lines === null || part.digest !== stored.parts[parts++]) throw changed()
      await file.write(lines)
    }
    if (parts < stored.parts.length) throw changed()
  }
  const head = await headOf(foundation, request)
  return { head, summary: summaryOf(stored.foot), closing, through: closing.through, begun: true }
}

type StoredMonth = Pick<StatementRequest, 'organizationId' | 'month'>

/** A part ends before the page of lines with which it would become longer. */
const partCharsMax = 1_000_000
/** A part of a single page can be longer than `partCharsMax`, but no part that this service stores is longer than this. */
const partBytesMax = 64_000_000
const partsPerRead = 4
const compress = promisify(zstdCompress)
const decompress = promisify(zstdDecompress)
/** Most parts fit into one piece. With the usual small pieces, decompressing takes several times as long. */
const unpacking = { chunkSize: partCharsMax, maxOutputLength: partBytesMax }

/** Stores the file of a closed month. Throws `CommandRefused` if the file does not have the digest of the closing. */
export const storeStatement = async (
  foundation: Reading & Required<Pick<Reading, 'pool'>>,
  { organizationId, month, nowMs, onProgress }: Omit<StatementRequest, 'file'> & { readonly nowMs: number },
): Promise<void> => {
  const { pool } = foundation
  let part = 0
  let text = ''
  const flush = async (): Promise<void> => {
    await pool.query(
      `insert into closed_month_files (organization_id, month, part, lines) values ($1, $2, $3, $4)
       on conflict (organization_id, month, part) do update set lines = excluded.lines`,
      [organizationId, month, part++, await compress(text)],
    )
    text = ''
  }
  const write: Write = async (more) => {
    if (text !== '' && text.length + more.length > partCharsMax) await flush()
    text += more
  }
  await statementFromLog(foundation, {
    organizationId,
    month,
    nowMs,
    onProgress,
    file: { form: jsonLines, write },
  })
  await flush()
  await pool.query(
    'delete from closed_month_files where organization_id = $1 and month = $2 and part >= $3',
    [organizationId, month, part],
  )
}

type StoredPart = {
  /** The digest of the compressed part. */
  readonly digest: string
  /** Null if the part cannot be decompressed. */
  readonly lines: Promise<Buffer | null>
}

/** The parts of a stored file. Only a few are in memory, and they are decompressed at the same time. */
async function* storedParts(
  pool: NonNullable<Reading['pool']>,
  { organizationId, month }: StoredMonth,
): AsyncGenerator<StoredPart> {
  for (let from = 0; ; from += partsPerRead) {
    const { rows } = await pool.query<{ lines: Buffer }>(
      `select lines from closed_month_files where organization_id = $1 and month = $2 and part >= $3 and part < $4
       order by part`,
      [organizationId, month, from, from + partsPerRead],
    )
    yield* rows.map(({ lines }) => ({
      digest: createHash('sha256').update(lines).digest('base64url'),
      lines: decompress(lines, unpacking).catch(() => null),
    }))
    if (rows.length < partsPerRead) return
  }
}

/**
 * `digest` proves that the file is complete; it is empty if a part cannot be decompressed. `foot` is the last line, and `parts` are the digests of
 * the compressed parts.
 */
type StoredFile = { readonly digest: string; readonly foot: string; readonly parts: readonly string[] }

const readStored = async (stored: AsyncIterable<StoredPart>): Promise<StoredFile> => {
  const whole = createHash('sha256')
  const parts: string[] = []
  let last: Buffer = Buffer.alloc(0)
  for await (const part of stored) {
    const lines = await part.lines
    if (lines === null) return { digest: '', foot: '', parts }
    parts.push(part.digest)
    whole.update(lines)
    last = lines
  }
  const foot = last.subarray(last.lastIndexOf('\n', -2) + 1).toString()
  return { digest: whole.digest('base64url'), foot, parts }
}

const headOf = async (
  { eventLog }: Pick<Reading, 'eventLog'>,
  { organizationId, month }: StoredMonth,
): Promise<StatementHead> => {
  const [first] = (await eventLog.read(ledgerStream(organizationId), { from: 0, max: 1 })).map(decodeEvent)
  const name = first?.type === 'OrganizationRegistered' ? first.data.name : ''
  return { organizationId, name, month }
}

/**
 * Reads the statement of a month from the ledger. `digest` is the digest of the month's JSON Lines; empty if the month cannot be
 * closed yet.
 */
export const statementFromLog = (
  foundation: Reading,
  request: StatementRequest & { readonly nowMs: number },
): Promise<MonthStatement & { readonly digest: string; readonly months: Months }> =>
  knownLedger(request.organizationId, async () => {
    const { organizationId, month, nowMs, file, onLines, onProgress } = request
    const { eventLog } = foundation
    const head = await headOf(foundation, request)
    const start = startAfter(await closingUpTo(foundation, organizationId, monthBefore(month)))
    const { opening, to } = await openingOf(eventLog, organizationId, { start, month, onProgress })
    const hash = closableAt(month) <= nowMs ? createHash('sha256') : null
    hash?.update(jsonLines.head(head, opening))
    await file?.write(file.form.head(head, opening))
    const months = monthsFrom(start)
    const summary = await readStatement(eventLog, organizationId, {
      month,
      months,
      opening,
      to,
      onProgress,
      onLines: async (lines) => {
        onLines?.(lines)
        const json = hash === null && file?.form !== jsonLines ? '' : textOf(jsonLines, lines)
        hash?.update(json)
        await file?.write(file.form === jsonLines ? json : textOf(file.form, lines))
      },
    })
    const closing = months.closings.find((one) => one.month >= month) ?? null
    const through = months.end - 1
    hash?.update(jsonLines.foot(head, summary, null))
    await file?.write(file.form.foot(head, summary, closing === null ? through : null))
    const digest = hash?.digest('base64url') ?? ''
    if (closing?.month === month && closing.closed.digest !== digest)
      throw new CommandRefused(await contradiction(foundation, { organizationId, closing, digest }))
    const begun = start.after !== '' || [...months.sums.keys()].some((one) => one <= month)
    return { head, summary, closing, through, begun, digest, months }
  })

const textOf = ({ line }: StatementForm, lines: readonly StatementLine[]): string => {
  let text = ''
  for (const one of lines) text += line(one)
  return text
}

/** The reason why a closed month's file differs from the file at the closing, as far as it can be determined. */
const contradiction = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  { organizationId, closing, digest }: { organizationId: string; closing: MonthClosing; digest: string },
): Promise<string> => {
  const { fault } = await verifyLedger(eventLog, organizationId)
  const named =
    fault === null
      ? "The ledger's own chain is intact, so the ledger was rewritten, or another release wrote the statement. Compare the ledger with a checkpoint or a copy kept elsewhere."
      : `The ledger was changed: revision ${fault.revision}, ${fault.event_id === null ? 'no event' : `event ${fault.event_id} (${fault.type})`}: ${fault.fault}.`
  return (
    `the statement of ${closing.month} of ${organizationId} differs from the statement that was closed: its digest is ${digest}, ` +
    `and the closing at revision ${closing.revision} has ${closing.closed.digest}. ${named}`
  )
}
