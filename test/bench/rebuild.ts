import pg from 'pg'
import { ulid } from 'ulid'
import { projections } from '../../projections/index.ts'
import { openPostgresEventLog } from '../../src/event-log/postgres/index.ts'
import { rebuildProjections } from '../../src/projector/rebuild.ts'
import { createIndexes, createTables, liveTable } from '../../src/projector/tables.ts'
import { writeHistory } from './ledger-history.ts'
import { processorMsOfTree } from './processor-time.ts'
import { type BenchOptions, figureRow, median, type Row, ratioRow } from './row.ts'
import { withFoundation } from './store.ts'

/**
 * Compares a rebuild of every projection from a long log with COPY of the resulting rows into tables with the same keys and
 * indexes. COPY is the fastest way for PostgreSQL to store the rows.
 */

const organizations = 50
const roundsMax = 3

export const rebuild = ({ events, rounds, report }: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation, store: { postgresPid }, logger }) => {
    const { url, migrationUrl, secrets } = foundation
    const seal = secrets.rowSeal
    const startedAt = performance.now()
    const written = await writeHistory(
      url,
      Array.from({ length: organizations }, () => ({
        organizationId: `org_${ulid()}`,
        events: Math.round(events / organizations),
      })),
    )
    report(`rebuild: wrote ${written} events in ${((performance.now() - startedAt) / 1_000).toFixed(1)} s`)
    const eventLog = openPostgresEventLog({ url, logger })
    // COPY to and from the server's files needs the owner's rights.
    const client = new pg.Client({ connectionString: migrationUrl })
    await client.connect()
    try {
      // Without a projector the checkpoints are at zero. A rebuild ends at its projection's checkpoint, so the checkpoints are
      // moved to the head.
      await client.query('update projection_checkpoints set position = (select position from log_head)')
      const rebuildS: number[] = []
      const copyS: number[] = []
      for (let round = 0; round < Math.min(rounds, roundsMax); round++) {
        const from = performance.now()
        const ownFrom = process.cpuUsage()
        const postgresFrom = processorMsOfTree(postgresPid)
        await rebuildProjections({ url, eventLog, seal, projections })
        rebuildS.push((performance.now() - from) / 1_000)
        const own = process.cpuUsage(ownFrom)
        report(
          `rebuild: processor time ${((own.user + own.system) / 1e6).toFixed(2)} s here, ` +
            `${((processorMsOfTree(postgresPid) - postgresFrom) / 1_000).toFixed(2)} s in PostgreSQL`,
        )
        copyS.push(await copyRows(client))
        report(
          `rebuild: all in ${rebuildS.at(-1)?.toFixed(2)} s, COPY of their rows in ${copyS.at(-1)?.toFixed(2)} s`,
        )
      }
      const perSecond = (seconds: number[]): number => written / median(seconds)
      return [
        figureRow('rebuild of all projections', perSecond(rebuildS), 'events/s', { least: 150_000 }),
        ratioRow('rebuild of all projections, against COPY of the same rows', {
          measured: perSecond(rebuildS),
          against: perSecond(copyS),
          ratio: median(rebuildS.map((seconds, i) => (copyS[i] ?? Number.NaN) / seconds)),
          unit: 'events/s',
          bound: { least: 0.5 },
        }),
      ]
    } finally {
      await eventLog.close()
      await client.end()
    }
  })

/**
 * COPY from the server's own files. With node-postgres, COPY through a connection needs another package, and a pipe through this
 * process could only be slower. Text format, like the rebuild's parameters. Writing the files is not counted.
 */
const copyRows = async (client: pg.Client): Promise<number> => {
  const { rows } = await client.query<{ directory: string }>(
    `select current_setting('data_directory') as directory`,
  )
  const file = `${rows[0]?.directory}/bench.copy`
  await client.query('set synchronous_commit = off')
  let seconds = 0
  for (const projection of projections) {
    const copied = (name: string): string => `copied_${name}`
    for (const { name } of projection.tables) {
      await client.query(`copy ${liveTable(projection)(name)} to '${file}'`)
      const startedAt = performance.now()
      const only = { ...projection, tables: projection.tables.filter((table) => table.name === name) }
      await createTables(client, only, copied)
      await client.query(`copy ${copied(name)} from '${file}'`)
      await createIndexes(client, only, copied)
      seconds += (performance.now() - startedAt) / 1_000
      await client.query(`drop table ${copied(name)}`)
    }
  }
  await client.query(`copy (select) to '${file}'`)
  return seconds
}
