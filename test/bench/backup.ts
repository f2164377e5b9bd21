import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { ulid } from 'ulid'
import { projections } from '../../projections/index.ts'
import { createBackup } from '../../src/administration/backup/create.ts'
import { restoreBackup } from '../../src/administration/backup/restore.ts'
import { rebuild } from '../../src/administration/projections/rebuilds.ts'
import { parseConfig } from '../../src/config.ts'
import { verifyLog } from '../../src/event-log/verify/verify-log.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { writeHistory } from './ledger-history.ts'
import { type BenchOptions, figureRow, type Row } from './row.ts'
import { logger, openStore, type Store, withFoundation } from './store.ts'

/** A backup of a long log, and its restore into an empty database, including verification and rebuild. */

const organizations = 50

export const backup = ({ events, begin, report }: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation, store }) => {
    const written = await writeHistory(
      foundation.url,
      Array.from({ length: organizations }, () => ({
        organizationId: `org_${ulid()}`,
        events: Math.round(events / organizations),
      })),
    )
    report(`backup: wrote ${written} events`)
    const path = join(store.dataDir, 'backup.tar')
    begin()
    const made = await createBackup(foundation, {
      ...{ path, actor: 'bench' },
      onProgress: () => undefined,
    })
    const bytes = (await stat(path)).size
    report(`backup: ${(bytes / 1e6).toFixed(1)} MB in ${(made.elapsedMs / 1_000).toFixed(1)} s`)
    const [checkedS, loadedS, provedS, foldedS] = await restored(path, store)
    const perMillion = 1_000_000 / written
    const row = (what: string, seconds: number): Row =>
      figureRow(`${what}, for 10^6 events`, seconds * perMillion, 's', null)
    return [
      figureRow('backup of 10^6 events', (bytes / 1e6) * perMillion, 'MB', null),
      row('backup create', made.elapsedMs / 1_000),
      row('backup restore: files checked', checkedS),
      row('backup restore: rows loaded', loadedS),
      row('backup restore: event log proved', provedS),
      row('backup restore: projections folded', foldedS),
    ]
  })

/** Seconds of each step, without the start of PostgreSQL. */
const restored = async (path: string, { environment }: Store): Promise<[number, number, number, number]> => {
  const { SECRET_KEY, KEY_DIR } = environment
  const empty = await openStore()
  try {
    const config = parseConfig({ ...empty.environment, SECRET_KEY, KEY_DIR })
    let at = performance.now()
    const lap = (): number => {
      const from = at
      at = performance.now()
      return (at - from) / 1_000
    }
    let checkedS = 0
    let begunLoading = false
    await restoreBackup(config, {
      ...{ path, keysLost: false, logger, waitMs: 60_000 },
      onProgress: ({ phase }) => {
        if (phase === 'checked') checkedS += lap()
        else if (!begunLoading) {
          lap()
          begunLoading = true
        }
      },
    })
    const loadedS = lap()
    const foundation = await openFoundation(config, {
      ...{ logger, anyEventLog: true, anyHistory: true, anyMark: true },
    })
    try {
      lap()
      const { faults } = await verifyLog({ eventLog: foundation.eventLog, store: foundation.treeStore })
      if (faults.length > 0) throw new Error(`the restored log does not verify: ${JSON.stringify(faults[0])}`)
      const provedS = lap()
      await rebuild(foundation, {
        ...{ projections, reason: 'restored', actor: 'bench', logger },
        ...{ mayForget: async () => true, onProgress: () => undefined },
      })
      return [checkedS, loadedS, provedS, lap()]
    } finally {
      await foundation.close()
    }
  } finally {
    await empty.close()
  }
}
