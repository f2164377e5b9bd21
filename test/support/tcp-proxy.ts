/** A proxy between a client and its server that can cause network faults. */
import { connect, createServer, type Socket } from 'node:net'

export type TcpProxy = {
  readonly port: number
  /** Stops passing data in both directions. Connections stay open, and new ones are accepted. */
  freeze(): void
  /** Cuts all connections, and every new one immediately, until `thaw`. */
  refuse(): void
  /** Ends `freeze` or `refuse`, and delivers the data that was held back. */
  thaw(): void
  /**
   * Discards the server's next bytes and cuts their connection, so the request arrives but its reply is lost. Resolves when that
   * has happened.
   */
  loseNextReply(): Promise<void>
  /** Discards the next bytes from a client and cuts their connection, so the request never arrives. */
  loseNextRequest(): Promise<void>
  close(): Promise<void>
}

type Loss = { readonly done: () => void }

export const startTcpProxy = async (server: { host: string; port: number }): Promise<TcpProxy> => {
  const sockets = new Set<Socket>()
  let frozen = false
  let refusing = false
  let loseReply: Loss | undefined
  let loseRequest: Loss | undefined

  const join = (client: Socket): void => {
    if (refusing) {
      client.destroy()
      return
    }
    const upstream = connect(server)
    const cut = (): void => {
      client.destroy()
      upstream.destroy()
    }
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      if (frozen) socket.pause()
      socket.on('error', cut)
      socket.on('close', () => {
        sockets.delete(socket)
        cut()
      })
    }
    client.on('data', (bytes) => {
      if (loseRequest === undefined) return upstream.write(bytes)
      const { done } = loseRequest
      loseRequest = undefined
      cut()
      done()
    })
    upstream.on('data', (bytes) => {
      if (loseReply === undefined) return client.write(bytes)
      const { done } = loseReply
      loseReply = undefined
      cut()
      done()
    })
    client.on('end', () => upstream.end())
    upstream.on('end', () => client.end())
  }

  const listener = createServer(join)
  await new Promise<void>((resolve, reject) => {
    listener.once('error', reject)
    listener.listen(0, '127.0.0.1', resolve)
  })
  const address = listener.address()
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port')

  return {
    port: address.port,
    freeze: () => {
      frozen = true
      for (const socket of sockets) socket.pause()
    },
    refuse: () => {
      refusing = true
      for (const socket of sockets) socket.destroy()
    },
    thaw: () => {
      frozen = false
      refusing = false
      for (const socket of sockets) socket.resume()
    },
    loseNextReply: () => new Promise((done) => (loseReply = { done })),
    loseNextRequest: () => new Promise((done) => (loseRequest = { done })),
    close: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => listener.close(resolve))
    },
  }
}
