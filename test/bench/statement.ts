import { createHash } from 'node:crypto'
import { ulid } from 'ulid'
import { eventLine } from '../../src/administration/event-log/event-json.ts'
import { exportLedger } from '../../src/administration/ledgers/ledgers.ts'
import { closeMonth } from '../../src/administration/months/close-month.ts'
import { monthStatement } from '../../src/administration/months/statements.ts'
import { monthAfter, monthStart } from '../../src/billing/months.ts'
import { csv, jsonLines, type StatementForm } from '../../src/billing/statement-file.ts'
import type { RecordedEvent } from '../../src/event-log/port.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { openHistories } from './ledger-history.ts'
import { type BenchOptions, figureRow, median, type Row } from './row.ts'
import { withFoundation } from './store.ts'

/**
 * Measures the statement of a month, in both formats, and the export of the events. The month before is closed, as it usually is;
 * the other organization has no closed month, so its ledger is read twice: for the opening balance and for the lines. Then the month is
 * closed, and the stored statement file is read. Output is hashed instead of written, so the disk is not measured.
 * `--events 20000000` results in more than ten million lines.
 */

const monthBefore = '2025-12'
const month = '2026-01'
const eventsBefore = 1_000
const megabyte = 1_000_000
const roundsMax = 3

export const statement = ({ events, rounds, report }: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation }) => {
    const [organizationId, neverClosed] = [`org_${ulid()}`, `org_${ulid()}`] as const
    const startedAt = performance.now()
    const ledger = openHistories(foundation.url, [organizationId])
    await ledger.grow(eventsBefore, inMonth(monthBefore))
    const between = await close(foundation, organizationId, monthBefore)
    const written = await ledger.grow(events, { ...inMonth(month), between })
    await openHistories(foundation.url, [neverClosed]).grow(events, inMonth(month))
    report(
      `statement: wrote ${written} events for each organization in ${((performance.now() - startedAt) / 1_000).toFixed(1)} s`,
    )
    const contenders = {
      'statement, JSON Lines': () => writeStatement(foundation, organizationId, jsonLines),
      'statement, CSV': () => writeStatement(foundation, organizationId, csv),
      'statement before any closing, JSON Lines': () => writeStatement(foundation, neverClosed, jsonLines),
      'ledger export': () => writeExport(foundation, organizationId),
    }
    const perSecond = new Map<string, number[]>()
    const memory = watchMemory()
    for (let round = 0; round < Math.min(rounds, roundsMax); round++)
      for (const [name, run] of Object.entries(contenders)) {
        const from = performance.now()
        const cpuFrom = process.cpuUsage()
        const lines = await run()
        const seconds = (performance.now() - from) / 1_000
        const cpu = process.cpuUsage(cpuFrom)
        perSecond.set(name, [...(perSecond.get(name) ?? []), lines / seconds])
        report(
          `${name}: ${lines} lines in ${seconds.toFixed(2)} s, processor time here ${((cpu.user + cpu.system) / 1e6).toFixed(2)} s`,
        )
      }
    const memoryMost = memory.end()
    const stored: number[] = []
    await close(foundation, organizationId, month)
    for (let round = 0; round < Math.min(rounds, roundsMax); round++) {
      const from = performance.now()
      const lines = await writeStatement(foundation, organizationId, jsonLines)
      stored.push((lines * 1_000) / (performance.now() - from))
    }
    perSecond.set('closed month, stored file', stored)
    return [
      ...[...perSecond].map(([name, figures]) =>
        figureRow(name, median(figures), 'lines/s', { least: 200_000 }),
      ),
      figureRow('memory beyond what it began with, at most', memoryMost / megabyte, 'MB', { most: 300 }),
    ]
  })

const inMonth = (one: string): { from: number; to: number } => ({
  from: Date.parse(monthStart(one)),
  to: Date.parse(monthStart(monthAfter(one))),
})

/** Closes a month, and records its position as the projection does. Resolves with the events of the closing. */
const close = async (
  foundation: Foundation,
  organizationId: string,
  closing: string,
): Promise<readonly RecordedEvent[]> => {
  const { eventLog, pool } = foundation
  const stream = ledgerStream(organizationId)
  const before = await eventLog.lastRevision(stream)
  await closeMonth(foundation, {
    organizationId,
    month: closing,
    actor: 'bench',
    nowMs: inMonth(monthAfter(closing)).to,
  })
  const appended = await eventLog.read(stream, { from: Number(before) + 1, max: 10 })
  const closed = appended.at(-1)
  await pool.query(
    `insert into audit_entries (position, at, actor, type, stream, about)
     values ($1, now(), 'bench', 'MonthClosed', $2, array[$3])`,
    [closed?.position, closed?.stream, organizationId],
  )
  return appended
}

const writeStatement = async (
  foundation: Foundation,
  organizationId: string,
  form: StatementForm,
): Promise<number> => {
  const hash = createHash('sha256')
  const { summary } = await monthStatement(foundation, {
    organizationId,
    month,
    nowMs: Date.parse('2026-01-31T00:00:00.000Z'),
    file: { form, write: async (text) => void hash.update(text) },
  })
  return summary.lines
}

const writeExport = async ({ eventLog }: Foundation, organizationId: string): Promise<number> => {
  const hash = createHash('sha256')
  let events = 0
  const range = { by: 'revision', from: 0, to: null } as const
  for await (const page of exportLedger({ eventLog }, { organizationId, range })) {
    events += page.length
    let text = ''
    for (const event of page) text += `${eventLine(event)}\n`
    hash.update(text)
  }
  return events
}

const sampleEveryMs = 50

const watchMemory = (): { end: () => number } => {
  const before = process.memoryUsage().rss
  let most = before
  const timer = setInterval(() => {
    most = Math.max(most, process.memoryUsage().rss)
  }, sampleEveryMs)
  return {
    end: () => {
      clearInterval(timer)
      return most - before
    },
  }
}
