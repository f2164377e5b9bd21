import type { Permission } from '../events/capabilities.ts'

/** A first call with a new key, ready to run: on a command line, in TypeScript and in Python. Pure. */

type Request = { readonly path: string; readonly body: Readonly<Record<string, string>> }

/** The first call for a key with several permissions: the cheapest. */
const requests: readonly (readonly [Permission, Request])[] = [
  ['ip_lookup', { path: '/v1/ip/lookup', body: { ip: '8.8.8.8' } }],
  ['email_validation', { path: '/v1/email/validate', body: { email: 'ada@example.com' } }],
  ['profnet_scraping', { path: '/v1/profnet/profile', body: { lid: 'ada-lovelace' } }],
]

type Example = { readonly name: string; readonly text: string }

/** `baseUrl` has no slash at its end. */
export const firstCalls = ({
  apiUrl,
  dashboardUrl,
  apiKey,
  permissions,
}: {
  readonly apiUrl: string
  readonly dashboardUrl: string
  readonly apiKey: string
  readonly permissions: readonly string[]
}): Example[] => {
  const request = requests.find(([permission]) => permissions.includes(permission))?.[1]
  const url = request === undefined ? `${dashboardUrl}/whoami` : `${apiUrl}${request.path}`
  const json = request === undefined ? null : JSON.stringify(request.body)
  const curlBody = json === null ? '' : ` -H 'content-type: application/json' -d '${json}'`
  const headers = `{ 'x-api-key': '${apiKey}'${json === null ? '' : `, 'content-type': 'application/json'`} }`
  const options =
    json === null ? `{ headers: ${headers} }` : `{ method: 'POST', headers: ${headers}, body: '${json}' }`
  const pythonBody = json === null ? '' : `, b'${json}'`
  const pythonType = json === null ? '' : `, 'content-type': 'application/json'`
  return [
    { name: 'curl', text: `curl -i '${url}' -H 'x-api-key: ${apiKey}'${curlBody}` },
    { name: 'TypeScript', text: `console.log(await (await fetch('${url}', ${options})).json())` },
    {
      name: 'Python',
      text: `import urllib.request as r; print(r.urlopen(r.Request('${url}'${pythonBody}, headers={'x-api-key': '${apiKey}'${pythonType}})).read().decode())`,
    },
  ]
}
