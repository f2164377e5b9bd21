/**
 * Writes the installation and the backup that later releases are tested with: `node test/upgrade/keep-installation.ts`. Run it when the
 * version in package.json is raised, and keep the files of earlier releases. Takes a minute.
 */
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import packaged from '../../package.json' with { type: 'json' }
import { startEmbeddedPostgres } from '../../src/foundation/embedded/server.ts'
import { cliJson, startService } from '../support/service.ts'
import { companies, observe, people, prices, useInstallation } from '../support/used-installation.ts'
import { backupPathOf, keep, pathOf, writeKept } from './kept-installation.ts'

const bytesMax = 300_000

const dir = await mkdtemp(join(tmpdir(), 'keep-installation-'))
const files = {
  people: join(dir, 'people.jsonl'),
  companies: join(dir, 'companies.jsonl'),
  prices: join(dir, 'prices.json'),
}
await writeFile(files.people, people())
await writeFile(files.companies, companies())
await writeFile(files.prices, prices())
const postgres = await startEmbeddedPostgres({ dataDir: join(dir, 'postgres') })
const environment = {
  DATABASE_URL: postgres.url,
  DATA_DIR: join(dir, 'data'),
  KEY_DIR: join(dir, 'keys'),
  SECRET_KEY: randomBytes(32).toString('base64url'),
  TWO_PERSON: 'off',
  EMAIL_PROBE: 'off',
  DNS_SERVERS: '127.0.0.1:9',
  EGRESS_ALLOW: '127.0.0.1',
}
const service = await startService(environment)
// A failure must not leave the service running.
const use = await useInstallation(service, environment, files).finally(() => service.end('SIGTERM'))
// The service writes its counts when it ends, and this command folds them.
await cliJson(['projection', 'verify', '--all'], environment)
const seen = await observe(environment, use)
const kept = await keep(postgres.url, {
  release: packaged.version,
  secretKey: environment.SECRET_KEY,
  keyDir: environment.KEY_DIR,
  use,
  seen,
})
await writeKept(kept)
await cliJson(['backup', 'create', backupPathOf(packaged.version)], environment)
await postgres.stop()
await rm(dir, { recursive: true, force: true })
const { size } = await stat(pathOf(packaged.version))
if (size > bytesMax) throw new Error(`${pathOf(packaged.version)} has ${size} bytes, more than ${bytesMax}`)
process.stdout.write(`${pathOf(packaged.version)}: ${size} bytes, ${kept.rows.length} tables\n`)
