import { createHash } from 'node:crypto'
import { ulid } from 'ulid'
import { eventLine } from '../../src/administration/event-log/event-json.ts'
import { exportLedger } from '../../src/administration/ledgers/ledgers.ts'
import { closeMonth } from '../../src/administration/months/close-month.ts'
import { monthStatement } from '../../src/administration/months/statements.ts'
import { csv, jsonLines, type StatementForm } from '../../src/billing/statement-file.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { writeHistory } from './ledger-history.ts'
import { type BenchOptions, figureRow, median, type Row } from './row.ts'
import { withFoundation } from './store.ts'

/**
 * Measures a month's statement, in both formats, and the export of the events, for an organization that made all its calls in the
 * first month. While no month is closed, the statement reads the ledger twice: for its opening balance and for its lines. Then
 * the month is closed, and the stored statement file is read. Output is hashed instead of written, so the disk is not measured.
 * `--events 20000000` results in more than ten million lines.
 */

const month = '2026-01'
const megabyte = 1_000_000
const roundsMax = 3

export const statement = ({ events, rounds, report }: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation }) => {
    const organizationId = `org_${ulid()}`
    const startedAt = performance.now()
    // In a busy month, events are closer together than in the other benchmarks.
    const written = await writeHistory(foundation.url, [{ organizationId, events }])
    report(`statement: wrote ${written} events in ${((performance.now() - startedAt) / 1_000).toFixed(1)} s`)
    const contenders = {
      'statement, JSON Lines': () => writeStatement(foundation, organizationId, jsonLines),
      'statement, CSV': () => writeStatement(foundation, organizationId, csv),
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
    await close(foundation, organizationId)
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

/** Closes the month, and records its position as the projection does. */
const close = async (foundation: Foundation, organizationId: string): Promise<void> => {
  const { eventLog, pool } = foundation
  const nowMs = Date.parse('2026-02-28T00:00:00.000Z')
  await closeMonth(foundation, { organizationId, month, actor: 'bench', nowMs })
  const [closing] = await eventLog.read(ledgerStream(organizationId), { direction: 'backwards', max: 1 })
  await pool.query(
    `insert into audit_entries (position, at, actor, type, stream, about)
     values ($1, now(), 'bench', 'MonthClosed', $2, array[$3])`,
    [closing?.position, closing?.stream, organizationId],
  )
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
