/** The table of routes: which routes are pages, and the route of an address. Pure. */
import { actionOfRoute, type Route } from '../../src/dashboard/access.ts'

export const routes = Object.keys(actionOfRoute) as Route[]

/** These exist only while work runs, and stream. */
const passing: readonly Route[] = ['GET /waiting/:work/progress', 'GET /jobs/:job', 'GET /jobs/:job/progress']

/** A file to download, not a page. */
const isFile = (route: Route): boolean => /(\.[a-z]+|\/file)$/.test(route)

/** A part of a page, for its scripts. */
const isPart = (route: Route): boolean => route.includes('/pick/') || route.endsWith('/choices')

export const pageRoutes = routes.filter(
  (route) => route.startsWith('GET ') && !isFile(route) && !isPart(route) && !passing.includes(route),
)
export const formRoutes = routes.filter((route) => route.startsWith('POST '))

/** How specific a route is: like the router, it puts a fixed part before a parameter. */
const rank = (route: Route): string => route.replaceAll(/:\w+/g, '~')

/** The most specific first. Made once: a page has a hundred links, and there are hundreds of routes. */
const patterns = routes
  .toSorted((one, other) => (rank(one) < rank(other) ? -1 : 1))
  .map((route) => ({
    route,
    pattern: new RegExp(`^${route.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+')}$`),
  }))

/** The route of an address, or undefined. */
export const routeAt = (method: string, path: string): Route | undefined =>
  patterns.find(({ pattern }) => pattern.test(`${method} ${path}`))?.route
