import type { Readable } from 'node:stream'
import { addressesToDial, clientTo, type Dialling, failureToReach, type NoPage, refusalOf } from './dial.ts'

/**
 * One message to a stranger's web server. The answer is its status; of its body the beginning is read and a body
 * without end, or a slow one, changes nothing. Redirects are not followed: they are an answer like another, and the
 * message is for the server it was addressed to. As everywhere, what fails outside is an answer and never thrown.
 *
 * Without TLS only exempt addresses are dialled (`EGRESS_ALLOW`).
 */
export type PostRequest = {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** For everything together: names, connection, status. */
  readonly deadlineMs: number
  readonly signal?: AbortSignal | undefined
}

/** `text` is the beginning of the body, as UTF-8. */
export type PostAnswer =
  | { readonly kind: 'answered'; readonly status: number; readonly text: string }
  | NoPage

const textBytesMax = 1_024
/** The status has been heard by then: there is no reason to wait long for words. */
const textWaitMs = 1_000

export const postBounded = async (request: PostRequest, dialling: Dialling): Promise<PostAnswer> => {
  const url = URL.parse(request.url)
  if (url === null) return { kind: 'refused', detail: 'url' }
  const refusal = refusalOf(url)
  if (refusal !== null) return { kind: 'refused', detail: refusal }
  const deadline = AbortSignal.timeout(request.deadlineMs)
  const signal = request.signal === undefined ? deadline : AbortSignal.any([deadline, request.signal])
  const target = { url, signal, deadline }
  const dialled = await addressesToDial(target, dialling)
  if (dialled.kind !== 'addresses') return dialled
  const addresses =
    url.protocol === 'https:' ? dialled.addresses : dialled.addresses.filter(dialling.guard.exempts)
  if (addresses.length === 0) return { kind: 'refused', detail: 'scheme' }
  const client = clientTo(url, { addresses, ca: dialling.ca })
  try {
    const { statusCode: status, body } = await client.request({
      method: 'POST',
      path: url.pathname + url.search,
      headers: request.headers,
      body: request.body,
      signal,
    })
    body.on('error', () => undefined)
    return { kind: 'answered', status, text: await beginningOf(body) }
  } catch (error) {
    return failureToReach(error, target)
  } finally {
    await client.destroy()
  }
}

const beginningOf = async (body: Readable): Promise<string> => {
  const chunks: Buffer[] = []
  let bytes = 0
  const enough = setTimeout(() => body.destroy(), textWaitMs)
  try {
    for await (const chunk of body) {
      if (!(chunk instanceof Uint8Array)) break
      chunks.push(Buffer.from(chunk))
      bytes += chunk.length
      if (bytes >= textBytesMax) break
    }
  } catch {
    // What came until then is told.
  } finally {
    clearTimeout(enough)
  }
  return Buffer.concat(chunks).subarray(0, textBytesMax).toString('utf8')
}
