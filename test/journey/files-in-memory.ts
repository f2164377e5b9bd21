/**
 * The data directories of journeys are in memory if there is enough of it, because PostgreSQL waits for the disk many times while
 * it starts. Services use a small location file, because opening the package's own file takes half a second of processor time.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fastestDir, prefix } from '../support/global-setup.ts'
import { writeMmdb } from '../support/mmdb-writer.ts'

const country = { iso_code: 'US', names: { en: 'United States' } }
/** The networks are wide, so that the service soon finds the addresses that it looks up at its start. */
const networks = { '0.0.0.0/1': { country }, '128.0.0.0/1': { country }, '2000::/3': { country } }

export default async function setup(): Promise<() => Promise<void>> {
  const directory = await mkdtemp(join(await fastestDir(), prefix))
  process.env.TMPDIR = directory
  process.env.GEOIP_CITY_DB = join(directory, 'city.mmdb')
  await writeFile(process.env.GEOIP_CITY_DB, writeMmdb({ ipVersion: 6, networks }))
  return () => rm(directory, { recursive: true, force: true })
}
