import pg from 'pg'
import { test } from 'vitest'
import { inventedPeople } from '../../src/capabilities/profile/dataset/invented-people.ts'
import { importProfiles, seedDatasetIfEmpty } from '../../src/capabilities/profile/dataset-import.ts'
import { createDatasetProvider } from '../../src/capabilities/profile/dataset-provider.ts'
import { createIdentifiers } from '../../src/capabilities/profile/identifier.ts'
import { testDatabase } from '../support/postgres.ts'
test('m', async () => {
  const d = await testDatabase(); const pool = new pg.Pool({ connectionString: d.url, max: 4 }); pool.on('error', () => {})
  const identifiers = createIdentifiers({ domain: null, urnPrefix: null })
  const areSuppressed = async (p: readonly unknown[]) => p.map(() => false)
  let t = performance.now()
  await seedDatasetIfEmpty({ pool, identifiers, areSuppressed, epochMs: Date.now })
  console.log('seed', performance.now() - t)
  const N = 50_000
  async function* s() { for (const p of inventedPeople(N)) yield Buffer.from(JSON.stringify(p) + '\n') }
  t = performance.now(); const c = process.cpuUsage()
  const r = await importProfiles({ pool, stream: s(), identifiers, areSuppressed, epochMs: Date.now })
  console.log(r.imported, 'lines/s', N / (performance.now() - t) * 1000, process.cpuUsage(c).user / 1e6, process.memoryUsage().rss / 1e6)
  t = performance.now()
  await importProfiles({ pool, stream: s(), identifiers, areSuppressed, epochMs: Date.now })
  console.log('again lines/s', N / (performance.now() - t) * 1000)
  const p = createDatasetProvider({ pool, clock: { epochMs: Date.now }, logger: { error() {}, warn() {} } })
  const lids = [...inventedPeople(1000)].map((x) => x.lid); const ms: number[] = []
  for (const value of lids) { t = performance.now(); await p.fetch({ kind: 'lid', value }, { deadlineMs: 1e12, ageMaxMs: null, signal: new AbortController().signal }); ms.push(performance.now() - t) }
  ms.sort((a, b) => a - b); console.log('read p50', ms[500], 'p99', ms[990])
  t = performance.now(); for (let i = 0; i < 200_000; i++) identifiers.parse('https://www.profnet.com/in/talvora-quill'); console.log('parse url ns', (performance.now() - t) * 5)
  t = performance.now(); for (let i = 0; i < 200_000; i++) identifiers.parse('talvora-quill'); console.log('parse lid ns', (performance.now() - t) * 5)
  await pool.end(); await d.drop()
}, 120_000)
