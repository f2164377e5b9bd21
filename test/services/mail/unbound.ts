/** Unbound, which resolves only a zone that belongs to the test. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { accepts, type ServerProcess, startProcess } from './process.ts'

export type UnboundOptions = {
  readonly address: string
  readonly port: number
  /** The zone, and its records as in a zone file. */
  readonly zone: string
  readonly records: readonly string[]
  /** Queries are refused for these names in the zone and for everything below them. */
  readonly refused: readonly string[]
  /** Queries for these names are dropped. */
  readonly silent: readonly string[]
  /** A trust anchor claims that these names are signed, but they are not: SERVFAIL. */
  readonly bogus: readonly string[]
  /** Names whose name servers are down. */
  readonly dead: readonly string[]
}

/** Unbound answers at `port`, and at port 53 for clients whose port cannot be set. */
export const startUnbound = async (options: UnboundOptions): Promise<ServerProcess> => {
  const directory = await mkdtemp(join(tmpdir(), 'unbound-'))
  const remove = (): Promise<void> => rm(directory, { recursive: true, force: true })
  try {
    const { address, port, zone, records } = options
    const zoneFile = join(directory, 'zone')
    const zoneHead = ['$ORIGIN .', '$TTL 300']
    const apex = [
      `${zone}. SOA ns.${zone}. hostmaster.${zone}. 1 3600 600 86400 60`,
      `${zone}. NS ns.${zone}.`,
    ]
    const glue = `ns.${zone}. A ${address}`
    await writeFile(zoneFile, `${[...zoneHead, ...apex, glue, ...records].join('\n')}\n`)
    const configuration = join(directory, 'unbound.conf')
    await writeFile(configuration, `${configurationOf(options, { directory, zoneFile }).join('\n')}\n`)
    const unbound = await startProcess({
      command: 'unbound',
      args: ['-d', '-c', configuration],
      ready: () => accepts(address, port),
    })
    return {
      log: unbound.log,
      close: async () => {
        await unbound.close()
        await remove()
      },
    }
  } catch (error) {
    await remove()
    throw error
  }
}

const configurationOf = (
  { address, port, zone, refused, silent, bogus, dead }: UnboundOptions,
  { directory, zoneFile }: { directory: string; zoneFile: string },
): string[] => [
  'server:',
  `  directory: "${directory}"`,
  '  chroot: ""',
  '  username: ""',
  `  pidfile: "${join(directory, 'pid')}"`,
  '  use-syslog: no',
  '  verbosity: 1',
  '  module-config: "validator iterator"',
  '  num-threads: 1',
  `  interface: ${address}@${port}`,
  `  interface: ${address}@53`,
  '  access-control: 127.0.0.0/8 allow',
  '  do-not-query-localhost: no',
  // Nothing outside the zone is resolved.
  '  local-zone: "." refuse',
  `  local-zone: "${zone}." transparent`,
  '  local-zone: "127.in-addr.arpa." static',
  '  local-data-ptr: "127.0.0.1 localhost"',
  ...refused.map((name) => `  local-zone: "${name}." refuse`),
  ...silent.map((name) => `  local-zone: "${name}." deny`),
  ...bogus.map((name) => `  trust-anchor: "${name}. DS 1 8 2 ${'0'.repeat(64)}"`),
  'remote-control:',
  '  control-enable: no',
  'auth-zone:',
  `  name: "${zone}."`,
  `  zonefile: "${zoneFile}"`,
  '  for-downstream: no',
  '  for-upstream: yes',
  '  fallback-enabled: no',
  // Port 1 on loopback: no server runs there.
  ...dead.flatMap((name) => ['stub-zone:', `  name: "${name}."`, '  stub-addr: 127.0.0.1@1']),
]
