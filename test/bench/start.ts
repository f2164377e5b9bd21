import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { eventually, lookup, startService } from '../support/service.ts'
import { onOne, openLoadGenerator } from './load.ts'
import { residentMbOf } from './processor-time.ts'
import { type BenchOptions, figureRow, median, type Row } from './row.ts'
import { startMeasured } from './service.ts'
import { newDataDir } from './store.ts'

/** The time from a warm start to the first answered call, and the service's memory under load. */

const connections = 64
const startsMax = 5
const allRoles = 'api,dashboard,projector,jobs'

export const start = async ({ rounds, seconds, report }: BenchOptions): Promise<Row[]> => {
  const dataDir = await newDataDir()
  try {
    const starts: number[] = []
    // The first start creates the database cluster and the demo organization, so it is not warm.
    for (let round = 0; round <= Math.min(rounds, startsMax); round++) {
      const startedAt = performance.now()
      const { apiUrl, end } = await startService(
        { DATA_DIR: dataDir, METRICS_PORT: '0' },
        { command: ['npm', 'start', '--silent'] },
      )
      const apiKey = await demoKey(dataDir)
      await eventually(async () => (await lookup(apiUrl, apiKey, '8.8.8.8')).status === 200 || undefined)
      const took = (performance.now() - startedAt) / 1_000
      report(`start: ${round === 0 ? 'first' : 'warm'} ${took.toFixed(2)} s`)
      if (round > 0) starts.push(took)
      await end('SIGTERM')
    }
    return [
      figureRow('warm npm start to the first answered call', median(starts), 's', { most: 3 }),
      figureRow(
        'resident memory under load, PostgreSQL excluded',
        await residentUnderLoad(seconds, report),
        'MB',
        { most: 350 },
      ),
    ]
  } finally {
    await rm(dataDir, { recursive: true, force: true })
  }
}

const demoKey = async (dataDir: string): Promise<string> =>
  (JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8')) as { api_key: string }).api_key

const residentUnderLoad = async (seconds: number, report: (line: string) => void): Promise<number> => {
  const generator = openLoadGenerator()
  const service = await startMeasured({ roles: allRoles })
  try {
    let most = 0
    const watching = setInterval(() => {
      most = Math.max(most, residentMbOf(service.pid))
    }, 100)
    await generator.run({
      ...onOne(service),
      connections,
      seconds: seconds * 3,
      rate: null,
      seed: 5,
    })
    clearInterval(watching)
    report(`start: ${most.toFixed(0)} MB at most, ${residentMbOf(service.pid).toFixed(0)} MB at the end`)
    return most
  } finally {
    await service.stop()
    await generator.stop()
  }
}
