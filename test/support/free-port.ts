import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'

/** The system gives ports from 32768 (Linux) or 49152 to connections, and to servers that ask for any port. */
const portMin = 15_000
const portMax = 32_000
const triesMax = 100

/** A port at which nothing listens. The system gives it to no one else, so it is still free when a server is started with it. */
export const freePort = async (): Promise<number> => {
  for (let tries = 0; tries < triesMax; tries++) {
    const port = randomInt(portMin, portMax)
    const server = createServer()
    try {
      await once(server.listen(port), 'listening')
    } catch {
      continue
    }
    server.close()
    await once(server, 'close')
    return port
  }
  throw new Error(`there is no free port from ${portMin} to ${portMax}`)
}
