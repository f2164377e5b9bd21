import { addressesToDial, clientTo, type Dialling, failureToReach, type NoPage, refusalOf } from './dial.ts'

/**
 * Sends a message to a web server that a partner chose, and returns the status. The body of the answer is not read, so that its content cannot be
 * disclosed to the person who chose the address. Redirects are not followed, because the message is only for its recipient. External failures are
 * returned, never thrown. Only exempt addresses (`EGRESS_ALLOW`) can be used without TLS.
 */
export type PostRequest = {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** The time limit for everything together: resolving the name, connecting, and receiving the status. */
  readonly deadlineMs: number
  readonly signal?: AbortSignal | undefined
}

export type PostAnswer = { readonly kind: 'answered'; readonly status: number } | NoPage

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
    body.destroy()
    return { kind: 'answered', status }
  } catch (error) {
    return failureToReach(error, target)
  } finally {
    await client.destroy()
  }
}
