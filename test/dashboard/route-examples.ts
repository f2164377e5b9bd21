/** The table of routes with examples for the parameters, for tests that request every route. */
import type { Route } from '../../src/dashboard/access.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import type { Scene } from './scene.ts'

/**
 * The keys are the path segments before the parameters, such as `keys` in `/organizations/:organization/keys/:key`; the
 * parameter's own name if another parameter comes before it.
 */
export type RouteExamples = Readonly<Record<string, string>>

/** Ids from the scene. An item that the scene does not have gets a well-formed id that does not exist. */
export const routeExamples = ({ organizationId, keyId, requestId }: Scene): RouteExamples => ({
  organizations: organizationId,
  keys: keyId,
  calls: requestId,
  months: new Date().toISOString().slice(0, 7),
  waiting: 'none',
  jobs: 'none',
  users: 'no-one',
  streams: ledgerStream(organizationId),
  revision: '0',
  at: '1',
})

/** Throws if a parameter has no example. The error names the place to add it. */
export const requestOf = (route: Route, examples: RouteExamples): { method: string; path: string } => {
  const [method = '', url = ''] = route.split(' ')
  const parts = url.split('/')
  const path = parts.map((part, i) => {
    if (!part.startsWith(':')) return part
    const before = parts[i - 1] ?? ''
    const name = before.startsWith(':') ? part.slice(1) : before
    const example = examples[name]
    if (example === undefined)
      throw new Error(
        `${route} has the parameter "${part}" without an example: add "${name}" to routeExamples in test/dashboard/route-examples.ts`,
      )
    return example
  })
  return { method, path: path.join('/') }
}
