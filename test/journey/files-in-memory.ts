/**
 * The data directories of journeys are in memory if there is enough of it, because PostgreSQL waits for the disk many times while
 * it starts.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fastestDir, prefix } from '../support/global-setup.ts'

export default async function setup(): Promise<() => Promise<void>> {
  const directory = await mkdtemp(join(await fastestDir(), prefix))
  process.env.TMPDIR = directory
  return () => rm(directory, { recursive: true, force: true })
}
