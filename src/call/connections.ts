import type { Server } from 'node:net'
import { addressBlock, type TrustedProxies } from '../guard/caller-address.ts'

/**
 * How many connections a host holds, and how many of them one address. An idle connection costs a file descriptor and
 * some kilobytes. Without a bound of its own, one address could hold all of them, and nobody else would get in.
 */

const connectionsMax = 10_000
/** A partner with 100 calls a second, each of the eight seconds a profile may take, needs 800. */
export const connectionsPerAddressMax = 1_000

/** What came over the bound is reset, not answered. A trusted proxy carries everybody's calls: it is not bounded. */
export const boundConnections = (
  server: Server,
  { trusts, refused }: { trusts: TrustedProxies; refused: () => void },
): void => {
  server.maxConnections = connectionsMax
  server.on('drop', refused)
  const held = new Map<string, number>()
  server.on('connection', (socket) => {
    // Gone again before anybody looked.
    if (socket.remoteAddress === undefined) return void socket.destroy()
    if (trusts(socket.remoteAddress)) return
    const block = addressBlock(socket.remoteAddress)
    const count = (held.get(block) ?? 0) + 1
    if (count > connectionsPerAddressMax) {
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
