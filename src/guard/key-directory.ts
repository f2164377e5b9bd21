import { BlockList, isIP, isIPv6 } from 'node:net'
import type { Logger } from 'pino'
import { type Following, follow } from '../event-log/follow.ts'
import type { EventLog, Position } from '../event-log/port.ts'
import { endsAtMs, evolveKey, isKeyEvent, type KeyState } from '../keys/key-state.ts'

/** A key ready for the door: its state, and what is asked on every call computed once. */
export type DirectoryKey = KeyState & {
  readonly endsAtMs: number
  /** Null: any address may use the key. */
  readonly allowed: BlockList | null
}

/**
 * Every API key, in memory, fed by the event log: authenticating a call asks nobody. A revocation anywhere reaches
 * every process as soon as its subscription delivers it, well within a second.
 */
export type KeyDirectory = {
  get(keyId: string): DirectoryKey | undefined
  readonly caughtUp: Promise<void>
  stop(): Promise<void>
}

/**
 * `known` are the keys as of `after`; what happened since is followed. While `failure` tells of one, a revocation may
 * not have been heard of.
 */
export const openKeyDirectory = ({
  eventLog,
  known,
  after,
  logger,
}: {
  eventLog: EventLog
  known: readonly KeyState[]
  after: Position
  logger: Logger
}): KeyDirectory & Pick<Following, 'failure'> => {
  const keys = new Map(known.map((key) => [key.keyId, forTheDoor(key)]))
  const following: Following = follow({
    eventLog,
    after,
    prefixes: ['key-'],
    logger,
    apply: (event) => {
      if (!isKeyEvent(event)) return
      const next = evolveKey(keys.get(event.data.key_id), event, event.metadata.effective_at)
      if (next !== undefined) keys.set(next.keyId, forTheDoor(next))
    },
  })
  return { get: (keyId) => keys.get(keyId), ...following }
}

const forTheDoor = (key: KeyState): DirectoryKey => ({
  ...key,
  endsAtMs: endsAtMs(key),
  allowed: key.allowedCidrs.length === 0 ? null : allowList(key.allowedCidrs),
})

/** An address list from CIDR blocks or single addresses. Throws a TypeError naming the block that is none. */
export const allowList = (cidrs: readonly string[]): BlockList => {
  const list = new BlockList()
  for (const cidr of cidrs) {
    const [address = '', prefix, ...rest] = cidr.split('/')
    const family = isIP(address)
    const bits = prefix === undefined ? (family === 4 ? 32 : 128) : Number(prefix)
    if (family === 0 || rest.length > 0 || !/^\d+$/.test(prefix ?? '0') || bits > (family === 4 ? 32 : 128))
      throw new TypeError(`"${cidr}" is not an address or a CIDR block such as 203.0.113.0/24`)
    list.addSubnet(address, bits, family === 4 ? 'ipv4' : 'ipv6')
  }
  return list
}

/** Whether an address may use the key. IPv4 callers on a dual-stack socket arrive as ::ffff:a.b.c.d. */
export const mayCallFrom = (key: DirectoryKey, address: string): boolean =>
  key.allowed === null || key.allowed.check(address, isIPv6(address) ? 'ipv6' : 'ipv4')
