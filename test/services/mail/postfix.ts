/** A Postfix installation with its own directory, and any number of mail servers in it, each at its own address. */
import { spawnSync } from 'node:child_process'
import { chmod, chown, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { greets, pathOf, type ServerProcess, startProcess } from './process.ts'

export type PostfixServer = {
  /** The server's name in the log: `postfix/NAME/smtpd`. */
  readonly name: string
  readonly address: string
  /** Settings as in `main.cf`. They apply only to this server. */
  readonly settings: Readonly<Record<string, string>>
  /** Adds postscreen in front, which rejects clients that do not behave like a mail server. */
  readonly postscreen?: boolean
}

export type Postfix = ServerProcess & {
  /** The number of connections to the server with that name, according to its log. */
  connections(name: string): Promise<number>
}

/** Starts Postfix. `settings` apply to all servers. Needs root, because Postfix switches to other users. */
export const startPostfix = async ({
  port,
  resolver,
  settings,
  servers,
}: {
  port: number
  /** The servers send DNS queries to port 53 at this address. */
  resolver: string
  settings: Readonly<Record<string, string>>
  servers: readonly PostfixServer[]
}): Promise<Postfix> => {
  const directory = await mkdtemp(join(tmpdir(), 'postfix-'))
  const remove = (): Promise<void> => rm(directory, { recursive: true, force: true })
  try {
    const logFile = await layOut(directory, { port, resolver, settings, servers })
    const first = servers.find(({ postscreen }) => postscreen !== true)
    // `start-fg` is not used, because its master is not a child of this process and has its own process group.
    run('postfix', ['-c', join(directory, 'etc'), 'check'])
    const postfix = await startProcess({
      command: join(run('postconf', ['-c', join(directory, 'etc'), '-h', 'daemon_directory']), 'master'),
      args: ['-c', join(directory, 'etc'), '-d'],
      logFile,
      ready: async () => {
        if (first !== undefined) await greets(first.address, port)
      },
    })
    return {
      log: postfix.log,
      connections: async (name) =>
        (await postfix.log())
          .split(`postfix/${name}/smtpd`)
          .filter((rest) => /^\[\d+\]: connect from/.test(rest)).length,
      close: async () => {
        await postfix.close()
        await remove()
      },
    }
  } catch (error) {
    await remove()
    throw error
  }
}

/** Returns the path of the log. */
const layOut = async (
  directory: string,
  {
    port,
    resolver,
    settings,
    servers,
  }: {
    port: number
    resolver: string
    settings: Readonly<Record<string, string>>
    servers: readonly PostfixServer[]
  },
): Promise<string> => {
  const [etc, spool, data] = [join(directory, 'etc'), join(directory, 'spool'), join(directory, 'data')]
  // Postfix's own user must be able to reach the directory.
  await chmod(directory, 0o755)
  for (const each of [etc, spool, data, join(spool, 'etc')]) await mkdir(each, { mode: 0o755 })
  const { uid, gid } = userNamed('postfix')
  await chown(data, uid, gid)
  // Postfix's servers use this directory as their root, so they use this resolver instead of the machine's.
  await writeFile(join(spool, 'etc', 'resolv.conf'), `nameserver ${resolver}\n`)
  await writeFile(join(spool, 'etc', 'hosts'), '127.0.0.1 localhost\n')
  const certificate = makeCertificate(etc)
  const logFile = join(directory, 'log')
  const main = {
    compatibility_level: '3.6',
    // With a delay, each accepted recipient would wait a second for a queue manager that does not run.
    in_flow_delay: '0s',
    queue_directory: spool,
    data_directory: data,
    maillog_file: logFile,
    maillog_file_prefixes: directory,
    myhostname: 'mail.example.com',
    mydestination: '',
    // As on the Internet, clients are not trusted because of their address.
    mynetworks: '192.0.2.1/32',
    alias_maps: '',
    smtpd_tls_cert_file: certificate,
    smtpd_tls_key_file: certificate,
    ...settings,
  }
  const mainText = Object.entries(main).map(([name, value]) => `${name} = ${value}\n`)
  await writeFile(join(etc, 'main.cf'), mainText.join(''))
  await writeFile(join(etc, 'master.cf'), [...internal, ...servers.flatMap(masterLines(port))].join('\n'))
  return logFile
}

/** The services that receiving servers need. Messages are never queued or delivered. */
const internal = [
  'cleanup   unix  n - n - 0 cleanup',
  'rewrite   unix  - - n - - trivial-rewrite',
  'proxymap  unix  - - n - - proxymap',
  'anvil     unix  - - n - 1 anvil',
  'tlsmgr    unix  - - n 1000? 1 tlsmgr',
  'tlsproxy  unix  - - n - 0 tlsproxy',
  'dnsblog   unix  - - y - 0 dnsblog',
  'postlog   unix-dgram n - n - 1 postlogd',
]

const masterLines =
  (port: number) =>
  ({ name, address, settings, postscreen = false }: PostfixServer): string[] => {
    const options = Object.entries({ syslog_name: `postfix/${name}`, ...settings }).map(
      ([setting, value]) => `  -o { ${setting} = ${value} }`,
    )
    if (!postscreen) return [`${address}:${port} inet n - y - - smtpd`, ...options]
    const behind = `${name}-behind`
    return [
      `${address}:${port} inet n - n - 1 postscreen`,
      ...options,
      // Each server remembers its own clients.
      `  -o { postscreen_cache_map = btree:$data_directory/${name} }`,
      `  -o { smtpd_service_name = ${behind} }`,
      `${behind} pass - - y - - smtpd`,
      ...options,
    ]
  }

const userNamed = (name: string): { uid: number; gid: number } => {
  const id = (flag: string): number => Number(run('id', [flag, name]))
  return { uid: id('-u'), gid: id('-g') }
}

const makeCertificate = (directory: string): string => {
  const file = join(directory, 'certificate.pem')
  const subject = ['-subj', '/CN=mail.example.com', '-days', '2']
  run('openssl', [
    'req',
    '-x509',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-keyout',
    file,
    '-out',
    `${file}.crt`,
    ...subject,
  ])
  run('sh', ['-c', 'cat "$1.crt" >> "$1"', 'sh', file])
  return file
}

const run = (command: string, args: readonly string[]): string => {
  const { status, stdout, stderr, error } = spawnSync(pathOf(command), args, {
    encoding: 'utf8',
    timeout: 20_000,
  })
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed: ${stderr}`, { cause: error })
  return stdout.trim()
}
