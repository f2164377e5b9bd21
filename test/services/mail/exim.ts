/** Exim, with a directory of its own; its configuration is the test's. */
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { greets, type ServerProcess, startProcess } from './process.ts'

/** `configuration` is what follows the main settings about addresses, paths and limits that a test's own server needs. */
export const startExim = async ({
  addresses,
  port,
  configuration,
}: {
  addresses: readonly string[]
  port: number
  configuration: (directory: string) => readonly string[]
}): Promise<ServerProcess> => {
  const directory = await mkdtemp(join(tmpdir(), 'exim-'))
  const remove = (): Promise<void> => rm(directory, { recursive: true, force: true })
  try {
    // Its own user has to find the way, and to write there.
    await chmod(directory, 0o777)
    const file = join(directory, 'exim.conf')
    const logFile = join(directory, 'main.log')
    const lines = [
      `spool_directory = ${join(directory, 'spool')}`,
      `log_file_path = ${join(directory, '%s.log')}`,
      `pid_file_path = ${join(directory, 'pid')}`,
      `local_interfaces = <; ${addresses.join(' ; ')}`,
      `daemon_smtp_ports = ${port}`,
      'primary_hostname = exim.example.com',
      ...configuration(directory),
    ]
    await writeFile(file, `${lines.join('\n')}\n`, { mode: 0o644 })
    const [first = ''] = addresses
    const exim = await startProcess({
      command: 'exim4',
      args: ['-C', file, '-bdf', '-oX', `<; ${addresses.join(' ; ')}`],
      logFile,
      ready: () => greets(first, port),
    })
    return {
      log: exim.log,
      close: async () => {
        await exim.close()
        await remove()
      },
    }
  } catch (error) {
    await remove()
    throw error
  }
}
