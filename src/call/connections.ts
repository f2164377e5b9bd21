import { readFileSync } from 'node:fs'
import type { Server } from 'node:net'
import { addressBlock, type TrustedProxies } from '../guard/caller-address.ts'

/**
 * How many connections a host holds, and how many of them one address may hold. An idle connection costs a file descriptor and
 * some kilobytes. Without a bound of its own, one address could hold all of them and shut out the others.
 */

const connectionsMax = 10_000
/** A partner that makes 100 calls a second, each of up to eight seconds for a profile, needs 800. */
export const connectionsPerAddressMax = 1_000

/** For databases, mail servers, files and other things a process opens. */
const otherFilesMax = 256
/** API, dashboard, metrics. */
const hostsMax = 3
/** One address holds at most one of so many parts. */
const addressesMin = 2

/**
 * The bounds, less where the process may not open that many files: calls of others need a descriptor, and so do the
 * databases they ask.
 */
export const boundsFor = (openFilesMax: number): { readonly all: number; readonly perAddress: number } => {
  const share = Math.max(addressesMin, Math.floor((openFilesMax - otherFilesMax) / hostsMax))
  const all = Math.min(connectionsMax, share)
  return { all, perAddress: Math.min(connectionsPerAddressMax, Math.floor(all / addressesMin)) }
}

/** Infinity if the system does not report it; Linux does. */
const openFilesMax = (): number => {
  try {
    const [, soft] = /^Max open files +(\d+) /m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
    return soft === undefined ? Number.POSITIVE_INFINITY : Number(soft)
  } catch {
    return Number.POSITIVE_INFINITY
  }
}

/** Connections over the bound are reset, not answered. A trusted proxy carries everyone's calls: it is not bounded. */
export const boundConnections = (
  server: Server,
  { trusts, refused }: { trusts: TrustedProxies; refused: () => void },
): void => {
  const { all, perAddress } = boundsFor(openFilesMax())
  server.maxConnections = all
  server.on('drop', refused)
  const held = new Map<string, number>()
  server.on('connection', (socket) => {
    // It was closed before anyone looked.
    if (socket.remoteAddress === undefined) return void socket.destroy()
    if (trusts(socket.remoteAddress)) return
    const block = addressBlock(socket.remoteAddress)
    const count = (held.get(block) ?? 0) + 1
    if (count > perAddress) {
      refused()
      // A reset leaves nothing behind in the kernel, where a proper end would wait for the other side's.
      socket.resetAndDestroy()
      return
    }
    held.set(block, count)
    socket.once('close', () => {
      const left = (held.get(block) ?? 1) - 1
      if (left === 0) held.delete(block)
      else held.set(block, left)
    })
  })
}
