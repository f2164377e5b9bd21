import type { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import { formatCredits } from '../billing/money.ts'
import { csvTextOf } from '../billing/statement-file.ts'

/** Tables as CSV (RFC 4180), for spreadsheets. */

type CsvCell = string | number | { readonly number: string }

const cellOf = (cell: CsvCell): string => {
  if (typeof cell === 'number') return String(cell)
  return typeof cell === 'object' ? cell.number : csvTextOf(cell)
}

export const csvOf = (head: readonly string[], rows: Iterable<readonly CsvCell[]>): string => {
  let text = `${head.join(',')}\r\n`
  for (const row of rows) text += `${row.map(cellOf).join(',')}\r\n`
  return text
}

/** The cell of an amount of micro-credits. */
export const amount = (micro: bigint | string): CsvCell => ({ number: formatCredits(BigInt(micro)) })

/** Sends a table as a file, which must not be cached, because its content depends on the user and the time. */
export const sendCsv = (reply: FastifyReply, name: string, body: string | Readable): FastifyReply =>
  reply
    .type('text/csv; charset=utf-8')
    .header('cache-control', 'no-store')
    .header('content-disposition', `attachment; filename="${name}.csv"`)
    .send(body)
