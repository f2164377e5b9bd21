import { ConfigError } from '../config.ts'
import { createOutage, type OutageLogger } from '../event-log/outage.ts'
import type { PeerHost } from './address.ts'
import type { PeerAddress } from './link.ts'
import type { PeerListener } from './listener.ts'

/** Where others send their commands: open only while another api process lives. */
export type Listening = {
  /** What others dial; null while it does not listen. */
  address(): PeerAddress | null
  /** Opens it where it is wanted, closes it where it was not for a while. Resolves with whether the address changed. Never rejects. */
  want(wanted: boolean): Promise<boolean>
  /** As `want(true)`. Throws `ConfigError` where the port is taken. */
  open(): Promise<void>
  tellLeaving(): void
  /** Proved ones. */
  connections(): number
  close(): Promise<void>
}

type ListeningOptions = {
  /** Asked once, when it is first needed. */
  readonly hostOf: () => Promise<PeerHost>
  /** 0: any that is free. */
  readonly port: number
  readonly listen: (place: { host: string; port: number }) => Promise<PeerListener>
  readonly logger: OutageLogger
  /** Alone for so long, it closes: one that restarts is back before. */
  readonly aloneMs: number
}

type Open = { readonly listener: PeerListener; readonly address: PeerAddress }

export const createListening = ({ hostOf, port, listen, logger, aloneMs }: ListeningOptions): Listening => {
  const outage = createOutage({ logger, what: 'peers: listening', level: 'error' })
  let host: PeerHost | undefined
  let opened: Open | null = null
  let wantedMs = Number.NEGATIVE_INFINITY

  const open = async (): Promise<void> => {
    if (opened !== null) return
    try {
      host ??= await hostOf()
      const listener = await listen({ host: host.listen, port })
      opened = { listener, address: { host: host.dial, port: listener.address.port } }
    } catch (error) {
      throw listenFault(error, host?.listen ?? '', port)
    }
    outage.works()
  }
  const close = async (): Promise<void> => {
    const { listener } = opened ?? {}
    opened = null
    await listener?.close()
  }
  return {
    address: () => opened?.address ?? null,
    want: async (wanted) => {
      const before = opened
      if (wanted) {
        wantedMs = performance.now()
        await open().catch(outage.failed)
      } else if (opened !== null && performance.now() - wantedMs >= aloneMs) void close()
      return opened !== before
    },
    open,
    tellLeaving: () => opened?.listener.tellLeaving(),
    connections: () => opened?.listener.connections() ?? 0,
    close,
  }
}

/** A failure to listen that a variable is to blame for; any other error as it is. */
const listenFault = (error: unknown, host: string, port: number): unknown => {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  if (code === 'EADDRINUSE')
    return new ConfigError(
      `PEER_PORT: port ${port} on ${host} is taken. Set PEER_PORT to another port, or leave it out: then any free one is used.`,
      { cause: error },
    )
  if (code === 'EACCES')
    return new ConfigError(`PEER_PORT: this user may not listen on port ${port}. Set one from 1024 on.`, {
      cause: error,
    })
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND' || code === 'EAI_AGAIN')
    return new ConfigError(`PEER_HOST: ${host} is no address of this machine`, { cause: error })
  return error
}
