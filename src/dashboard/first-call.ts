import type { JsonObject } from '../call/form.ts'
import { capabilities } from '../capabilities/index.ts'
import type { Addresses } from '../foundation/addresses.ts'

/** Example first calls with a new key, with curl, in TypeScript and in Python. */

/** `body` is null for a GET. */
type Request = { readonly url: string; readonly body: JsonObject | null }

/** The first call for a key with these permissions; undefined if no capability has one. */
export const firstRequest = (
  { apiUrl, dashboardUrl }: Addresses,
  permissions: readonly string[],
): Request | undefined => {
  for (const { hosts, document } of capabilities) {
    if (document.firstCall === undefined) continue
    const { call, body } = document.firstCall
    if (call.permission !== null && !permissions.includes(call.permission)) continue
    return { url: `${hosts.includes('dashboard') ? dashboardUrl : apiUrl}${call.path}`, body }
  }
  return undefined
}

/** `keyHeader` must already be quoted for the shell. */
export const curlOf = ({ url, body }: Request, keyHeader: string): string =>
  `curl -i '${url}' -H ${keyHeader}${body === null ? '' : ` -H 'content-type: application/json' -d '${JSON.stringify(body)}'`}`

type Example = { readonly name: string; readonly text: string }

export const firstCalls = ({
  apiKey,
  permissions,
  ...hosts
}: Addresses & { readonly apiKey: string; readonly permissions: readonly string[] }): Example[] => {
  const request = firstRequest(hosts, permissions)
  if (request === undefined) return []
  const { url } = request
  const json = request.body === null ? null : JSON.stringify(request.body)
  const headers = `{ 'x-api-key': '${apiKey}'${json === null ? '' : `, 'content-type': 'application/json'`} }`
  const options =
    json === null ? `{ headers: ${headers} }` : `{ method: 'POST', headers: ${headers}, body: '${json}' }`
  const pythonBody = json === null ? '' : `, b'${json}'`
  const pythonType = json === null ? '' : `, 'content-type': 'application/json'`
  return [
    { name: 'curl', text: curlOf(request, `'x-api-key: ${apiKey}'`) },
    { name: 'TypeScript', text: `console.log(await (await fetch('${url}', ${options})).json())` },
    {
      name: 'Python',
      text: `import urllib.request as r; print(r.urlopen(r.Request('${url}'${pythonBody}, headers={'x-api-key': '${apiKey}'${pythonType}})).read().decode())`,
    },
  ]
}
