/** A source of profiles on the loopback with scripted answers, including invalid ones. */
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export type UpstreamRequest = { readonly path: string; readonly headers: IncomingHttpHeaders }

export type UpstreamAnswer =
  | {
      readonly status?: number
      readonly headers?: Readonly<Record<string, string>>
      /** Text is sent unchanged, other values as JSON. */
      readonly body?: unknown
    }
  | 'silence'
  | 'reset'
  /** An endless body (in fact, a thousand million bytes). */
  | 'endless'

export type ProfileUpstream = {
  /** The address of the source, without a trailing slash. */
  readonly url: string
  readonly requests: readonly UpstreamRequest[]
  /** Sets the answers. The n-th request after this call, counted from 0, gets the n-th answer of the function. */
  answers(script: (request: UpstreamRequest, index: number) => UpstreamAnswer | Promise<UpstreamAnswer>): void
  close(): Promise<void>
}

const endlessBytesMax = 1_000_000_000

export async function profileUpstream(): Promise<ProfileUpstream> {
  const requests: UpstreamRequest[] = []
  let script: Parameters<ProfileUpstream['answers']>[0] = () => ({ status: 404 })
  let index = 0
  const server = createServer((request, response) => {
    // In some tests, clients disconnect in the middle of an answer.
    response.on('error', () => undefined)
    const seen = { path: request.url ?? '', headers: request.headers }
    requests.push(seen)
    void Promise.resolve(script(seen, index++)).then((answer) => send(answer, response))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    requests,
    answers: (next) => {
      script = next
      index = 0
      requests.length = 0
    },
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function send(answer: UpstreamAnswer, response: ServerResponse): void {
  if (answer === 'silence') return
  if (answer === 'reset') {
    response.destroy()
    return
  }
  if (answer === 'endless') {
    response.writeHead(200, { 'content-type': 'application/json' })
    pour(response, Buffer.alloc(64 * 1024, ' '), endlessBytesMax)
    return
  }
  const { status = 200, headers = {}, body = '' } = answer
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8', ...headers })
  response.end(text)
}

/** Sends bytes as fast as the client reads. */
function pour(response: ServerResponse, block: Buffer, bytesLeft: number): void {
  let left = bytesLeft
  while (left > 0 && !response.destroyed) {
    left -= block.length
    if (!response.write(block)) {
      response.once('drain', () => pour(response, block, left))
      return
    }
  }
  response.end()
}
