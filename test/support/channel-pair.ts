/** The two ends of a channel between processes, in this one: what Node.js carries as JSON, in order, on a later turn. */
import { EventEmitter } from 'node:events'
import { type Channel, type ChannelEnd, channelOf } from '../../src/concurrency/channel.ts'

export type ChannelPair = {
  readonly primary: Channel
  readonly fork: Channel
  /** The primary's end itself. */
  readonly end: EventEmitter
  /** What the fork has sent, as it crossed. */
  readonly sent: unknown[]
  /** What the fork sends waits from now on. */
  freeze(): void
  thaw(): void
  /** The primary is gone. */
  cut(): void
}

type End = EventEmitter & { connected: boolean; peer?: End; frozen: string[] | null; sent: unknown[] }

const endOf = (): End =>
  Object.assign(new EventEmitter(), {
    connected: true,
    frozen: null,
    sent: [],
    send(this: End, message: unknown, callback?: (error: Error | null) => void): boolean {
      const text = JSON.stringify(message)
      this.sent.push(JSON.parse(text))
      if (this.frozen === null) setImmediate(() => this.peer?.emit('message', JSON.parse(text)))
      else this.frozen.push(text)
      callback?.(null)
      return true
    },
  })

export const channelPair = (): ChannelPair => {
  const [primary, fork] = [endOf(), endOf()]
  primary.peer = fork
  fork.peer = primary
  return {
    primary: channelOf(primary as unknown as ChannelEnd),
    fork: channelOf(fork as unknown as ChannelEnd),
    end: primary,
    sent: fork.sent,
    freeze: () => {
      fork.frozen = []
    },
    thaw: () => {
      for (const text of fork.frozen ?? []) primary.emit('message', JSON.parse(text))
      fork.frozen = null
    },
    cut: () => {
      for (const end of [primary, fork]) {
        end.connected = false
        end.emit('disconnect')
      }
    },
  }
}
