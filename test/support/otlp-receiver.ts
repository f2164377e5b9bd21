/** Receives spans over OTLP/HTTP in JSON on a loopback port. It implements only the parts of a collector that tests need. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export type ReceivedSpan = {
  readonly name: string
  readonly kind: number
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly status: { readonly code?: number }
  readonly attributes: readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[]
}

type Exported = {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: ReceivedSpan['attributes'] }
    readonly scopeSpans: readonly { readonly spans: readonly ReceivedSpan[] }[]
  }[]
}

export type OtlpReceiver = {
  readonly url: string
  /** All spans received so far. */
  spans(): ReceivedSpan[]
  /** The request bodies, concatenated in order. */
  text(): string
  readonly requests: { readonly path: string; readonly headers: IncomingMessage['headers'] }[]
  /** From now on, accepts requests but does not answer them. */
  hang(): void
  close(): Promise<void>
}

export const openOtlpReceiver = async (): Promise<OtlpReceiver> => {
  const bodies: string[] = []
  const requests: OtlpReceiver['requests'] = []
  let hangs = false
  const take = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    requests.push({ path: request.url ?? '', headers: request.headers })
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    bodies.push(Buffer.concat(chunks).toString())
    if (!hangs) response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
  }
  const server = createServer((request, response) => {
    take(request, response).catch(() => response.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans: () =>
      bodies.flatMap((body) =>
        (JSON.parse(body) as Exported).resourceSpans.flatMap(({ scopeSpans }) =>
          scopeSpans.flatMap(({ spans }) => spans),
        ),
      ),
    text: () => bodies.join('\n'),
    requests,
    hang: () => {
      hangs = true
    },
    close: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
