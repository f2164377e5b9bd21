/** Postgrey, which defers unknown clients. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { accepts, type ServerProcess, startProcess } from './process.ts'

export const startPostgrey = async ({
  address,
  port,
  delaySeconds,
}: {
  address: string
  port: number
  delaySeconds: number
}): Promise<ServerProcess> => {
  const directory = await mkdtemp(join(tmpdir(), 'postgrey-'))
  const remove = (): Promise<void> => rm(directory, { recursive: true, force: true })
  try {
    const postgrey = await startProcess({
      command: 'postgrey',
      args: [
        `--inet=${address}:${port}`,
        `--dbdir=${directory}`,
        `--delay=${delaySeconds}`,
        '--user=root',
        '--group=root',
        '--hostname=mail.example.com',
        '--whitelist-clients=/dev/null',
        '--whitelist-recipients=/dev/null',
      ],
      ready: () => accepts(address, port),
    })
    return {
      log: postgrey.log,
      close: async () => {
        await postgrey.close()
        await remove()
      },
    }
  } catch (error) {
    await remove()
    throw error
  }
}
