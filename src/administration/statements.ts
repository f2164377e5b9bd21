import { createHash } from 'node:crypto'
import { closableAfterMs, isMonth, type Month, monthAfter, monthStart } from '../billing/months.ts'
import type { StatementLine, StatementSummary } from '../billing/statement.ts'
import { jsonLines, type StatementForm, type StatementHead } from '../billing/statement-file.ts'
import { StreamMissing } from '../event-log/port.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { sumMonthsOnward } from '../ledger/kept-sums.ts'
import { openingOf, readStatement } from '../ledger/month-lines.ts'
import { type MonthSums, sumMonths } from '../ledger/month-sums.ts'
import type { MonthClosing } from '../ledger/pages.ts'
import { verifyLedger } from '../ledger/verify.ts'
import { InputFault } from './input.ts'
import { missingLedger } from './ledgers.ts'

/** A month of an organization, as its statement says it. */

export type StatementFile = {
  readonly form: StatementForm
  /** Resolves when more can be written. */
  readonly write: (text: string) => Promise<void>
}

export type MonthStatement = {
  readonly head: StatementHead
  readonly summary: StatementSummary
  /** What closed it, itself or with a later month; null: it is open. */
  readonly closing: MonthClosing | null
  /** The ledger's last revision that was looked at. */
  readonly through: number
}

type StatementRequest = {
  readonly organizationId: string
  readonly month: Month
  /** Null: only the sums are wanted. */
  readonly file: StatementFile | null
  readonly onLines?: ((lines: readonly StatementLine[]) => void) | undefined
  readonly onProgress?: ((events: number) => void) | undefined
}

/** A month, from text. */
export const monthOf = (field: string, text: string): Month => {
  const month = text.trim()
  if (!isMonth(month)) throw new InputFault(field, `"${text}" is not a month such as 2026-11`)
  return month
}

/** The instant from which a month can be closed. */
export const closableAt = (month: Month): number =>
  Date.parse(monthStart(monthAfter(month))) + closableAfterMs

/** With a database, what was summed up before is gone on from; without one a ledger is read from its first event. */
export type Reading = Pick<Foundation, 'eventLog'> & {
  readonly pool?: Pick<Foundation['pool'], 'query'>
  readonly secrets?: Pick<Foundation['secrets'], 'rowSeal'>
}

/** What each month comes to. Throws `CommandRefused` where there is no such ledger. */
export const sumsOf = async (
  { eventLog, pool, secrets }: Reading,
  organizationId: string,
  options: Parameters<typeof sumMonths>[2],
): Promise<MonthSums> => {
  try {
    return pool === undefined || secrets === undefined
      ? await sumMonths(eventLog, organizationId, options)
      : await sumMonthsOnward({ eventLog, pool, seal: secrets.rowSeal }, organizationId, options ?? {})
  } catch (error) {
    throw error instanceof StreamMissing ? missingLedger(organizationId) : error
  }
}

/**
 * The statement of a month, written as it is read. Throws `CommandRefused` where there is no such ledger, and, at the end, where a
 * closed month does not come to the file it was closed with: what was written until then is not to be believed.
 */
export const monthStatement = async (
  foundation: Reading,
  request: StatementRequest & { readonly nowMs: number },
): Promise<MonthStatement> => {
  const { organizationId, month, nowMs, onProgress } = request
  if (Date.parse(monthStart(month)) > nowMs) throw new InputFault('month', `${month} has not begun`)
  const sums = await sumsOf(foundation, organizationId, { before: month, onProgress })
  const { digest, ...statement } = await writeStatement(foundation, {
    ...request,
    sums,
    mayBeClosed: closableAt(month) <= nowMs,
  })
  const { closing } = statement
  if (closing !== null && closing.month === month && closing.closed.digest !== digest)
    throw new CommandRefused(await contradiction(foundation, { organizationId, closing, digest }))
  return statement
}

/**
 * Reads the month that `sums` lead up to. `digest` is that of the month's JSON Lines as they are when it is closed; empty where it
 * cannot be.
 */
export const writeStatement = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  {
    organizationId,
    month,
    sums,
    mayBeClosed,
    file,
    onLines,
    onProgress,
  }: StatementRequest & { sums: MonthSums; mayBeClosed: boolean },
): Promise<MonthStatement & { readonly digest: string }> => {
  const head: StatementHead = { organizationId, name: sums.name, month }
  const opening = openingOf(sums, month)
  const hash = mayBeClosed ? createHash('sha256') : null
  hash?.update(jsonLines.head(head, opening))
  await file?.write(file.form.head(head, opening))
  const { summary, closing, through } = await readStatement(eventLog, organizationId, {
    month,
    sums,
    // Where the sums hold the whole ledger the lines end with it: what came since is in neither.
    ...(sums.whole ? { to: sums.end - 1 } : {}),
    onLines: async (lines) => {
      onLines?.(lines)
      const json = hash === null && file?.form !== jsonLines ? '' : textOf(jsonLines, lines)
      hash?.update(json)
      await file?.write(file.form === jsonLines ? json : textOf(file.form, lines))
    },
    onProgress,
  })
  hash?.update(jsonLines.foot(head, summary, null))
  await file?.write(file.form.foot(head, summary, closing === null ? through : null))
  return { head, summary, closing, through, digest: hash?.digest('base64url') ?? '' }
}

const textOf = ({ line }: StatementForm, lines: readonly StatementLine[]): string => {
  let text = ''
  for (const one of lines) text += line(one)
  return text
}

/** Why a closed month does not come to the file it was closed with, as far as it can be told. */
const contradiction = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  { organizationId, closing, digest }: { organizationId: string; closing: MonthClosing; digest: string },
): Promise<string> => {
  const { fault } = await verifyLedger(eventLog, organizationId)
  const named =
    fault === null
      ? "The ledger's own chain is whole: it was rewritten, or another release wrote the statement. Compare with a checkpoint or a copy kept outside."
      : `The ledger was changed: revision ${fault.revision}, ${fault.event_id === null ? 'no event' : `event ${fault.event_id} (${fault.type})`}: ${fault.fault}.`
  return (
    `the statement of ${closing.month} of ${organizationId} is not the one that was closed: its digest is ${digest}, ` +
    `and the closing at revision ${closing.revision} says ${closing.closed.digest}. ${named}`
  )
}
