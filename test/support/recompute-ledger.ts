/**
 * Recomputes a ledger from its export, offline, with Node.js 22.18 or later and nothing more. Pass all pages, in order:
 *
 *   curl -s "$URL/v1/ledger/export?from_revision=0" -H "x-api-key: $KEY" > 1.jsonl
 *   node recompute-ledger.ts 1.jsonl 2.jsonl …
 *
 * It checks that no page is incomplete; that no event was changed, removed or moved; that charges and free calls follow
 * from facts, price book and own prices; and that no charge exceeds the overdraft limit. Compare the balance that it prints with
 * GET /v1/balance.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'

// biome-ignore lint/suspicious/noExplicitAny: the export is not checked while it is parsed, but by recomputing it.
type Read = any
const digestOf = (...lines: unknown[]): string =>
  createHash('sha256').update(lines.join('\n')).digest('base64url')
const check = (holds: boolean, fault: string): void => {
  if (!holds) throw new Error(fault)
}
/** Converts credits to integers of micro-credits, and back. */
const micro = (amount: string): bigint => {
  const [whole = '', fraction = ''] = amount.split('.')
  return BigInt(whole + fraction.padEnd(6, '0'))
}
const credits = (amount: bigint): string => {
  const digits = String(amount).replace(/\d+/, (all) => all.padStart(7, '0'))
  return `${digits.slice(0, -6)}.${digits.slice(-6)}`.replace(/\.?0+$/, '')
}
const sumOf = (parts: Read[]): bigint => parts.reduce((sum, { amount }) => sum + micro(amount), 0n)

const applies = ({ rule, rule_version }: Read, facts: Read): boolean => {
  const [kind, value] = rule.split('.')
  if (kind !== facts.kind) return false
  const isCompany = value === 'company_found'
  check(rule_version <= (isCompany ? 2 : 1), `rule ${rule} version ${rule_version} is newer than this script`)
  if (value === undefined) return true
  if (kind === 'ip_lookup') return facts.success === (value === 'located')
  if (!isCompany) return (facts.status ?? facts.source) === value
  const isCertain =
    facts.status === 'valid' || (facts.status === 'risky' && facts.sub_status !== 'disposable')
  return facts.company_status === 'found' && (rule_version === 1 || isCertain)
}

export const createRecomputation = () => {
  const totals = { events: 0, calls: 0, charged: 0n, overdrawn: 0n, overdraftLimit: 0n }
  const lots = new Map<string, { left: bigint; expires: string | null }>()
  let header: Read = { price_books: [] }
  let own: Read[] = []
  let call: Read = null
  let digest = ''
  /** The revision with which the next page begins, or null after the last page. */
  let next: number | null = 0
  const booksAt = (at: string): Read[] => {
    const begun: Read[] = header.price_books.filter((book: Read) => book.effective_from <= at)
    const [last] = begun.map((book) => book.effective_from).sort((a, b) => (a < b ? 1 : -1))
    return begun.filter((book) => book.effective_from === last)
  }
  const partsOf = ({ rule, rule_version, sku, amount }: Read): Read[] => [rule, rule_version, sku, amount]
  /** The charge for a call under a price book, line by line. */
  const linesOf = (book: Read, { facts, at }: Read): string => {
    const lines: Read[] = []
    for (const one of book.rules) {
      const set = own.findLast(({ sku, effective_from }) => sku === one.sku && effective_from <= at)
      const amount = set?.amount ?? one.amount
      if (one.sku !== null && amount !== '0' && applies(one, facts)) lines.push(partsOf({ ...one, amount }))
    }
    return String(lines.sort())
  }
  const give = (id: string, amount: bigint, expires: string | null): void => {
    lots.set(id, { left: (lots.get(id)?.left ?? 0n) + amount, expires })
  }
  /** Deducts the parts from their lots. The amount that the parts do not cover is overdraft. */
  const take = (amount: bigint, parts: Read[]): void => {
    totals.overdrawn += amount - sumOf(parts)
    for (const { grant_id: id, amount: part } of parts) {
      const { left, expires } = lots.get(id) ?? { left: 0n, expires: null }
      check(left >= micro(part), `lot ${id} does not hold ${part}`)
      give(id, -micro(part), expires)
    }
  }
  const balanceAt = (at: string): bigint =>
    [...lots.values()]
      .filter(({ expires }) => expires === null || expires > at)
      .reduce((sum, { left }) => sum + left, -totals.overdrawn)
  const charge = (data: Read, { causation_id, effective_at }: Read): void => {
    check(causation_id === call?.id && call.free === undefined, 'a charge without its call')
    const book = booksAt(call.at).find(({ version }) => version === data.price_book_version)
    check(book !== undefined, `price book ${data.price_book_version} was not in force`)
    const bookDigest = digestOf(JSON.stringify([book.version, book.effective_from, book.rules.map(partsOf)]))
    check((data.price_book_digest ?? bookDigest) === bookDigest, `price book ${book.version} was changed`)
    const [said, due] = [String(data.lines.map(partsOf).sort()), linesOf(book, call)]
    check(said === due, `charges ${said}; due was ${due || 'nothing'}`)
    check(sumOf(data.lines) === micro(data.amount), 'its lines do not come to its amount')
    take(micro(data.amount), data.allocations)
    totals.charged += micro(data.amount)
    check(balanceAt(effective_at) >= -totals.overdraftLimit, 'it exceeds the overdraft limit')
  }
  const fold = ({ type, event_id: id, revision }: Read, data: Read, metadata: Read): void => {
    const isPaid = call === null || call.free !== undefined || type === 'CreditCharged'
    check(isPaid, 'the call before it is neither charged nor free')
    if (type === 'CreditCharged') charge(data, metadata)
    const { facts, free_by: free } = data
    call = type === 'KeyUsed' ? { id, facts, at: metadata.effective_at, free } : null
    const isFree = call === null || booksAt(call.at).some((book) => linesOf(book, call) === '')
    check(call?.free === undefined || isFree, 'it was free, and has a price')
    if (call !== null) totals.calls++
    if (type === 'OrganizationRegistered') totals.overdraftLimit = micro(data.overdraft_limit)
    if (type === 'CreditExpired') take(micro(data.amount), [data])
    if (type === 'CreditAdjusted' && data.amount.startsWith('-')) take(-micro(data.amount), data.allocations)
    else if (type === 'CreditGranted' || type === 'CreditAdjusted') {
      const { amount, overdraft_repaid, fills = [], grant_id = data.adjustment_id, expires_at = null } = data
      for (const part of fills) give(part.grant_id, micro(part.amount), part.expires_at)
      give(grant_id, micro(amount) - micro(overdraft_repaid) - sumOf(fills), expires_at)
      totals.overdrawn -= micro(overdraft_repaid)
    }
    if (type === 'PriceOverrideWithdrawn') own = own.filter((one) => one.revision !== data.override_revision)
    if (type === 'PriceOverrideSet') own.push({ ...data, revision })
    own.sort((a, b) => Date.parse(a.effective_from) - Date.parse(b.effective_from))
  }

  /** Processes the next line of an export. Throws at the first fault. */
  const line = (text: string): void => {
    const read = JSON.parse(text)
    const at = { ledger: read.from_revision, event: read.revision, end: read.through_revision + 1 }
    check(at[read.kind as 'event'] === totals.events, `revision ${totals.events} is missing`)
    if (read.kind === 'ledger') header = read
    next = read.kind === 'end' ? read.next_revision : totals.events
    if (read.kind !== 'event') return
    const { revision, event_id, type, metadata, data } = read
    const open = metadata.slice(0, metadata.lastIndexOf(',"digest":"'))
    digest = digestOf(digest, header.stream, revision, event_id, type, open, data)
    check(metadata === `${open},"digest":"${digest}"}`, `revision ${revision}, or one before it, was changed`)
    try {
      fold(read, JSON.parse(data), JSON.parse(metadata))
    } catch (error) {
      throw new Error(`revision ${revision}, ${type}: ${(error as Error).message}`)
    }
    totals.events++
  }
  /** Throws if a page, or the end of one, is missing. */
  const result = (at = new Date().toISOString()) => {
    check(next === null, `the export is incomplete: the rest after ${totals.events} events is missing`)
    const { events, calls, charged } = totals
    return { events, calls, charged: credits(charged), balance: credits(balanceAt(at)), digest }
  }
  return { line, result }
}

const [, script, ...files] = process.argv
if (import.meta.filename === script)
  try {
    check(files.length > 0, 'pass all pages of an export, in order')
    const { line, result } = createRecomputation()
    for (const file of files) readFileSync(file, 'utf8').trim().split('\n').forEach(line)
    console.log(result())
  } catch (error) {
    console.error(`NOT PROVED: ${error instanceof Error ? error.message : String(error)}`)
    process.exitCode = 1
  }
