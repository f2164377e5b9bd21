import { request as requestPlainly } from 'node:http'
import { request as requestSecurely } from 'node:https'
import { pinnedCertificate } from '../egress/pinned-certificate.ts'

export type Answer = {
  readonly status: number
  readonly cookies: string[]
  readonly location: string | undefined
  readonly text: string
}

/** Sends one request from a loopback address. Trusts a single certificate, under a single name. */
export const ask = (
  url: string,
  from: string,
  {
    method = 'GET',
    headers = {},
    body = '',
    ca = pinnedCertificate.cert,
    servername = 'pinned.test',
  }: { method?: string; headers?: object; body?: string; ca?: string; servername?: string } = {},
): Promise<Answer> =>
  new Promise((resolve, reject) => {
    const send = url.startsWith('https:') ? requestSecurely : requestPlainly
    const asked = send(
      url,
      { method, localAddress: from, headers: { ...headers }, agent: false, ca, servername },
      (response) => {
        let text = ''
        response.on('data', (chunk) => {
          text += chunk
        })
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            cookies: response.headers['set-cookie'] ?? [],
            location: response.headers.location,
            text,
          }),
        )
      },
    )
    asked.on('error', reject)
    asked.end(body)
  })
