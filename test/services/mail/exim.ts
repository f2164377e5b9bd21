/** Exim with its own directory. It needs root, and Exim's own user. */
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { greets, type ServerProcess, startProcess } from './process.ts'

/** Starts Exim. `configuration` is added to the settings for addresses and paths, which every test's server needs. */
export const startExim = async ({
  address,
  port,
  configuration,
}: {
  address: string
  port: number
  configuration: readonly string[]
}): Promise<ServerProcess> => {
  const directory = await mkdtemp(join(tmpdir(), 'exim-'))
  const remove = (): Promise<void> => rm(directory, { recursive: true, force: true })
  try {
    // Exim's own user must be able to reach the directory and write to it.
    await chmod(directory, 0o777)
    const file = join(directory, 'exim.conf')
    const settings = [
      `spool_directory = ${join(directory, 'spool')}`,
      `log_file_path = ${join(directory, '%s.log')}`,
      `pid_file_path = ${join(directory, 'pid')}`,
      `local_interfaces = ${address}`,
      `daemon_smtp_ports = ${port}`,
      'primary_hostname = mail.example.org',
    ]
    await writeFile(file, `${[...settings, ...configuration].join('\n')}\n`, { mode: 0o644 })
    const exim = await startProcess({
      command: 'exim4',
      args: ['-C', file, '-bdf'],
      logFile: join(directory, 'main.log'),
      ready: () => greets(address, port),
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
