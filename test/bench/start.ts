import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { printed, stopChild, until } from './children.ts'
import { onOne, openLoadGenerator } from './load.ts'
import { residentMbOf } from './processor-time.ts'
import { type BenchOptions, figureRow, median, type Row } from './row.ts'
import { answers, newDataDir, startService, startWithNpm } from './service.ts'

/** How long a warm start takes until the first call is answered, and how much memory the service takes under load. */

const connections = 64
const startsMax = 5
const allRoles = 'api,dashboard,projector,jobs'

export const start = async ({ rounds, seconds, tell }: BenchOptions): Promise<Row[]> => {
  const dataDir = await newDataDir()
  try {
    const starts: number[] = []
    // The first creates the cluster and the demo organization; it is not warm.
    for (let round = 0; round <= Math.min(rounds, startsMax); round++) {
      const startedAt = performance.now()
      const child = startWithNpm({ roles: allRoles, dataDir })
      const url = new URL(await printed(child, /^API +(http:\S+)$/m))
      let apiKey = ''
      await until('the demo key', async () => {
        apiKey = await demoKey(dataDir)
        return apiKey !== '' && (await answers(url, apiKey))
      })
      const took = (performance.now() - startedAt) / 1_000
      tell(`start: ${round === 0 ? 'first' : 'warm'} ${took.toFixed(2)} s`)
      if (round > 0) starts.push(took)
      await stopChild(child)
    }
    return [
      figureRow('warm npm start to the first answered call', median(starts), 's', { most: 3 }),
      figureRow(
        'resident memory under load, PostgreSQL excluded',
        await residentUnderLoad(seconds, tell),
        'MB',
        { most: 350 },
      ),
    ]
  } finally {
    await rm(dataDir, { recursive: true, force: true })
  }
}

const demoKey = async (dataDir: string): Promise<string> => {
  const text = await readFile(join(dataDir, 'demo.json'), 'utf8').catch(() => '{}')
  return (JSON.parse(text) as { api_key?: string }).api_key ?? ''
}

const residentUnderLoad = async (seconds: number, tell: (line: string) => void): Promise<number> => {
  const generator = openLoadGenerator()
  const service = await startService({ roles: allRoles })
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
    tell(`start: ${most.toFixed(0)} MB at most, ${residentMbOf(service.pid).toFixed(0)} MB at the end`)
    return most
  } finally {
    await service.stop()
    await generator.stop()
  }
}
