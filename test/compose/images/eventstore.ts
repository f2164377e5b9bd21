/**
 * Stands in for the EventStoreDB image: the protocol double, configured by the server's own variables. It stores events and users
 * in the server's data directory. Three of these doubles do not form a real cluster: the second always acts as the leader, and
 * the first and third only name it as the leader.
 */
import { appendFileSync, existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { type Journal, type StoredEvent, startEventStoreDouble } from '../../support/eventstore-double.ts'
import type { Users } from '../../support/eventstore-double-access.ts'

const eventsFile = '/var/lib/eventstore/events.jsonl'
const usersFile = '/var/lib/eventstore/users.json'

type Line = Omit<StoredEvent, 'data' | 'metadata' | 'position'> & {
  readonly data: string
  readonly metadata: string
  readonly position: string
}
const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64')
const bytes = (given: string): Uint8Array => Uint8Array.from(Buffer.from(given, 'base64'))

const toLine = (event: StoredEvent): string => {
  const line: Line = {
    ...event,
    data: text(event.data),
    metadata: text(event.metadata),
    position: String(event.position),
  }
  return `${JSON.stringify(line)}\n`
}
const fromLine = (json: string): StoredEvent => {
  const line: Line = JSON.parse(json)
  return { ...line, data: bytes(line.data), metadata: bytes(line.metadata), position: BigInt(line.position) }
}
const read = (path: string): string => (existsSync(path) ? readFileSync(path, 'utf8') : '')

/** Writes each append once, before it is answered, so that an answered append survives a kill. */
const journal: Journal = {
  events: read(eventsFile).split('\n').slice(0, -1).map(fromLine),
  users: JSON.parse(read(usersFile) || '[]') satisfies Users,
  keepEvents: (events) => appendFileSync(eventsFile, events.map(toLine).join('')),
  keepUsers: (users) => {
    writeFileSync(`${usersFile}.new`, JSON.stringify(users))
    renameSync(`${usersFile}.new`, usersFile)
  },
}

const variable = (name: string): string => {
  const value = process.env[`EVENTSTORE_${name}`]
  if (value === undefined || value === '') throw new Error(`EVENTSTORE_${name} is missing`)
  return value
}
const port = Number(variable('NODE_PORT'))
const leader = process.env.EVENTSTORE_CLUSTER_SIZE === '3' ? 'eventstore2' : hostname()

process.on('SIGTERM', () => process.exit(0))
await startEventStoreDouble({
  host: variable('NODE_IP'),
  port,
  leader: { address: leader, port },
  systemEventEvery: 100,
  secured: {
    adminPassword: variable('DEFAULT_ADMIN_PASSWORD'),
    certificate: {
      cert: readFileSync(variable('CERTIFICATE_FILE'), 'utf8'),
      key: readFileSync(variable('CERTIFICATE_PRIVATE_KEY_FILE'), 'utf8'),
    },
  },
  journal,
})
console.log('listening')
