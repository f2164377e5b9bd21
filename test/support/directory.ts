import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'

/** A temporary directory for all tests of a file. It is removed after the last test. */
export const directoryForFile = async (): Promise<string> => {
  const directory = await mkdtemp(join(tmpdir(), 'test-'))
  afterAll(() => rm(directory, { recursive: true, force: true }))
  return directory
}
