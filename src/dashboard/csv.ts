/** Tables as CSV (RFC 4180), for spreadsheets. Pure. */

type CsvCell = string | number | { readonly number: string }

/** Puts an apostrophe before a text that a spreadsheet would interpret as a formula. */
const cellOf = (cell: CsvCell): string => {
  if (typeof cell === 'number') return String(cell)
  if (typeof cell === 'object') return cell.number
  const text = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

export const csvOf = (head: readonly string[], rows: Iterable<readonly CsvCell[]>): string => {
  let text = `${head.join(',')}\r\n`
  for (const row of rows) text += `${row.map(cellOf).join(',')}\r\n`
  return text
}
