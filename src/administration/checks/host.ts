import { Resolver } from 'node:dns/promises'
import { once } from 'node:events'
import { constants } from 'node:fs'
import { access, readdir, stat } from 'node:fs/promises'
import { hostname } from 'node:os'
import { isAbsolute, join, relative, resolve } from 'node:path'
import { within } from '../../concurrency/deadline.ts'
import { openRedis, reasonOf as redisReasonOf } from '../../concurrency/redis.ts'
import type { Config } from '../../config.ts'
import { codeOf } from '../../event-log/directory.ts'
import { keyDirOf } from '../../foundation/data-dir.ts'
import { writtenDirs } from '../../foundation/embedded/cluster.ts'
import { misspeltText, misspeltVariables } from '../../foundation/misspelt-variables.ts'
import { holdsData } from '../../foundation/secret-key.ts'
import { type DiskSpace, type DiskWatch, diskStateOf, scarcestOf, spaceText } from '../../guard/disk-space.ts'
import { type Check, type Found, fine, reasonOf, wrong } from './check.ts'

/** Checks of this host and its environment. They need no database. */

export type Host = {
  readonly config: Config
  readonly environment: Readonly<Record<string, string | undefined>>
  /** The faults in the environment, one line for each variable. */
  readonly faults: readonly string[]
}

const urlVariables = ['DATABASE_URL', 'DATABASE_MIGRATION_URL', 'EVENT_LOG_URL', 'REDIS_URL'] as const
const makeRoom =
  'Make room, or move DATA_DIR to a larger disk while the service is stopped. Do not delete anything in postgres/.'

/** Checks the disk of the embedded PostgreSQL. `disk` contains this process's last measurement. */
export const diskCheck: Check<{ config: Config; disk?: Pick<DiskWatch, 'seen'> }> = {
  name: 'disk of DATA_DIR',
  severity: 'fault',
  advice: makeRoom,
  readiness: { name: 'disk_space', counts: 'always' },
  gauges: {
    disk_free_ratio: 'Free share of the disk of DATA_DIR: of its bytes or its files, whichever is lower',
    disk_free_bytes: 'Free bytes of the disk of DATA_DIR',
    disk_full: '1 while new calls are refused because the disk is nearly full',
  },
  look: async ({ config: { DATABASE_URL, DATA_DIR }, disk }) => {
    const watched = disk?.seen() ?? null
    if (disk === undefined ? DATABASE_URL !== undefined : watched === null) return []
    const space = watched?.space ?? (await spaceIn(DATA_DIR))
    if (space === null) return []
    const state = watched?.state ?? diskStateOf(space)
    const { freeBytes, totalBytes, freeRatio } = space
    const figures = { free_bytes: freeBytes, total_bytes: totalBytes, free_ratio: freeRatio }
    const says = `${spaceText(space)}, at ${DATA_DIR}`
    return {
      found:
        state === 'ok'
          ? fine(says, figures)
          : state === 'low'
            ? wrong(says, { severity: 'warning', figures })
            : wrong(`${says}: new calls are refused`, { figures }),
      samples: {
        disk_free_ratio: [{ value: freeRatio }],
        disk_free_bytes: [{ value: freeBytes }],
        disk_full: [{ value: state === 'full' ? 1 : 0 }],
      },
      details: { detail: spaceText(space) },
    }
  },
}

/** The space on the disk that contains a directory; null if the directory does not exist yet. */
const spaceIn = (dataDir: string): Promise<DiskSpace | null> =>
  scarcestOf(writtenDirs(dataDir)).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return null
    throw error
  })

export const hostChecks: readonly Check<Host>[] = [
  {
    name: 'environment',
    severity: 'fault',
    advice: 'Correct the variable: the service does not start with this value.',
    look: ({ environment, faults }) => {
      const doubtful = misspeltVariables(environment).map((one) =>
        wrong(misspeltText(one), {
          severity: 'warning',
          advice:
            one.meant === null
              ? 'Rename or unset it; the configuration table lists all variables.'
              : `Rename it to ${one.meant}, or unset it.`,
        }),
      )
      const all = [...faults.map((one) => wrong(one)), ...doubtful]
      return all.length > 0 ? all : fine('every variable is known and valid')
    },
  },
  {
    name: 'passwords',
    severity: 'warning',
    advice:
      'Give that user a separate password, for example from openssl rand -hex 32, first on the server and then here.',
    look: ({ config }) => {
      const weak = urlVariables.filter((name) => isWeak(config[name] ?? ''))
      return weak.length === 0
        ? fine('no password is a well-known one')
        : weak.map((name) => wrong(`${name}: the password is a well-known one, or the name of the user`))
    },
  },
  {
    name: 'Redis',
    severity: 'warning',
    advice:
      'Check that Redis is running and that REDIS_URL is right. Until then each process counts rate limits on its own; charges do not depend on Redis.',
    look: ({ config }) => (config.REDIS_URL === undefined ? [] : redis(config.REDIS_URL)),
  },
  {
    name: 'mail name',
    severity: 'warning',
    advice:
      "Set SMTP_HELO to a name whose address is this host's public address, and make the reverse DNS (PTR) of that address resolve to the name.",
    look: ({ config }) => mailName(config),
  },
  diskCheck,
  {
    name: 'KEY_DIR',
    severity: 'warning',
    advice: 'Stop the service, move the directory elsewhere, and set KEY_DIR to it.',
    look: async ({ config }) => {
      const dir = keyDirOf(config)
      try {
        await access(`${dir}/.`, constants.R_OK | constants.W_OK | constants.X_OK)
      } catch (error) {
        if (codeOf(error) === 'ENOENT')
          return config.DATABASE_URL === undefined && (await holdsData(config.DATA_DIR))
            ? wrong(`${dir} does not exist, but ${config.DATA_DIR} contains the data of an earlier start`, {
                advice:
                  'Restore or mount the directory before you start the service, unless this installation has not created a key yet.',
              })
            : fine(`${dir} is created with the first key`)
        return wrong(`${dir} cannot be read and written (${codeOf(error)})`, {
          severity: 'fault',
          advice:
            'Specify a directory owned by the user that runs the service, and run this command as that user.',
        })
      }
      const path = relative(resolve(config.DATA_DIR), dir)
      const inside = path === '' || (!path.startsWith('..') && !isAbsolute(path))
      const chosen = config.KEY_DIR !== undefined || config.DATABASE_URL !== undefined
      const says = `${dir}${inside ? ' is inside DATA_DIR: leave it out of backups of that directory' : ''}`
      return inside && chosen ? wrong(says) : fine(says)
    },
  },
  {
    name: 'secret files',
    severity: 'warning',
    advice: 'Run this command as the user that runs the service.',
    look: async ({ config }) => {
      const dir = keyDirOf(config)
      const keys = (await readdir(dir).catch(() => [])).filter((one) => one.endsWith('.key'))
      const names = ['secret_key', 'secret_key_new', 'postgres.password', 'postgres.json', 'demo.json']
      const paths = [
        ...[...keys, '.'].map((name) => join(dir, name)),
        ...names.map((name) => join(config.DATA_DIR, name)),
        ...(config.TLS_KEY === undefined ? [] : [config.TLS_KEY]),
      ]
      const found = (await Promise.all(paths.map(openToOthers))).flat()
      return found.length > 0 ? found : fine('no other user can read them')
    },
  },
]

const wellKnown = new Set([
  'postgres',
  'password',
  'changeit',
  'changeme',
  'change-me',
  'admin',
  'root',
  'secret',
  'test',
  'enrichment',
  'enrichment_service',
  'eventstore',
  'redis',
  '123456',
  '12345678',
  'letmein',
  'example',
])

/** Whether the password in a URL is a well-known one, or the name of its user. */
function isWeak(text: string): boolean {
  // Node.js cannot parse a URL with several hosts; the first host is enough.
  const one = text.replace(/^[a-z+]+:/, 'http:').replace(/,[^/?]*/, '')
  if (!URL.canParse(one)) return false
  const { username, password } = new URL(one)
  return wellKnown.has(password.toLowerCase()) || (password !== '' && password === username)
}

const redisMaxMs = 4_000

async function redis(url: string): Promise<Found> {
  const client = await openRedis({ url, name: 'doctor', script: 'return 1' })
  let last: unknown = new Error(`no answer within ${redisMaxMs / 1_000} s`)
  client.on('error', (error) => {
    last = error
  })
  try {
    const ready = once(client, 'ready').then(() => client.ping())
    const answer = await within(ready, { waitMs: redisMaxMs }, () => null)
    return answer === 'PONG' ? fine('it answers') : wrong(`it does not answer: ${redisReasonOf(last)}`)
  } catch (error) {
    return wrong(`it does not answer: ${redisReasonOf(error)}`)
  } finally {
    client.disconnect()
  }
}

const dnsMaxMs = 2_000
const addressesMax = 4
const noName = new Set(['ENOTFOUND', 'ENODATA'])

/** Checks that the name in SMTP_HELO and its address resolve to each other, because many mail servers refuse a client otherwise. */
async function mailName({ EMAIL_PROBE, SMTP_HELO, DNS_SERVERS }: Config): Promise<Found> {
  if (EMAIL_PROBE === 'off') return fine('mail servers are not contacted (EMAIL_PROBE=off)')
  const name = SMTP_HELO ?? hostname()
  if (name.startsWith('[')) return fine(`${name} is an address, so there is no name to look up`)
  const resolver = new Resolver({ timeout: dnsMaxMs, tries: 1 })
  if (DNS_SERVERS !== undefined) resolver.setServers([...DNS_SERVERS])
  const asked = (question: Promise<string[]>): Promise<string[] | Error> =>
    question.catch((error: Error) => (noName.has(String(codeOf(error))) ? [] : error))
  const forward = await Promise.all([asked(resolver.resolve4(name)), asked(resolver.resolve6(name))])
  const failed = forward.find((one) => one instanceof Error)
  const addresses = forward.flatMap((one) => (one instanceof Error ? [] : one)).slice(0, addressesMax)
  if (addresses.length === 0 && failed !== undefined)
    return wrong(`${name} could not be looked up, because no DNS server answers: ${reasonOf(failed)}`, {
      advice:
        'Check DNS_SERVERS and the network. Without DNS every e-mail address stays unknown; set EMAIL_PROBE=off if mail servers should not be contacted.',
    })
  if (addresses.length === 0) return wrong(`${name} has no address in DNS`)
  for (const address of addresses) {
    const names = await asked(resolver.reverse(address))
    const leads = names instanceof Error ? [] : names.map((one) => one.toLowerCase().replace(/\.$/, ''))
    if (!leads.includes(name.toLowerCase()))
      return wrong(`${name} has the address ${address}, which resolves to ${leads[0] ?? 'no name'}`)
  }
  return fine(`${name} and ${addresses.join(', ')} resolve to each other`)
}

const othersMask = 0o077

/** A missing file is fine; a file that this user cannot read is a fault. */
async function openToOthers(path: string): Promise<Found[]> {
  try {
    await access(path, constants.R_OK)
    const { mode } = await stat(path)
    if ((mode & othersMask) === 0) return []
    const says = `${path} can be read by other users (mode ${(mode & 0o777).toString(8)})`
    return [wrong(says, { advice: `chmod go= ${path}` })]
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return []
    return [wrong(`${path} cannot be read (${codeOf(error)})`, { severity: 'fault' })]
  }
}
