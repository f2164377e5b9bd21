/** Stand-ins for other parties' servers, which stay open until the calling test ends. */
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net'
import { afterEach } from 'vitest'

export type Listening = { readonly port: number; connections(): number; close(): Promise<void> }

export const createListening = () => {
  const opened: Listening[] = []
  afterEach(async () => {
    for (const one of opened.splice(0)) await one.close()
  })

  /** Listens on every local address, so that connections to any of them are seen. */
  const listen = async (server: Server): Promise<Listening> => {
    const open = new Set<Socket>()
    let connections = 0
    server.on('connection', (socket: Socket) => {
      connections++
      open.add(socket)
      socket.on('error', () => undefined)
      socket.on('close', () => open.delete(socket))
    })
    server.listen(0, '0.0.0.0')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const close = async (): Promise<void> => {
      if (!server.listening) return
      for (const socket of open) socket.destroy()
      await once(server.close(), 'close')
    }
    const listening = { port, connections: () => connections, close }
    opened.push(listening)
    return listening
  }
  return {
    listen,
    web: (answer: RequestListener) => listen(createServer(answer)),
    raw: (answer: (socket: Socket) => void) => listen(createTcpServer(answer)),
  }
}
