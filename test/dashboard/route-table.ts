/** The table of routes: which routes are pages, and which route belongs to a path. Pure. */
import { actionOfRoute, type Route } from '../../src/dashboard/access.ts'

export const routes = Object.keys(actionOfRoute) as Route[]

/** Routes that exist only while work runs. */
const passing: readonly Route[] = ['GET /jobs/:job']

const isFile = (route: Route): boolean => /(\.[a-z]+|\/file)$/.test(route)

/** Whether the route returns a part of a page, which scripts request. */
const isPart = (route: Route): boolean => route.includes('/pick/') || route.endsWith('/choices')

export const pageRoutes = routes.filter(
  (route) => route.startsWith('GET ') && !isFile(route) && !isPart(route) && !passing.includes(route),
)
export const formRoutes = routes.filter((route) => route.startsWith('POST '))

/** The key by which routes are sorted. Like the router, it places a fixed part before a parameter. */
const rank = (route: Route): string => route.replaceAll(/:\w+/g, '~')

/** The most specific routes first. Computed once, because a page has a hundred links, and there are hundreds of routes. */
const patterns = routes
  .toSorted((one, other) => (rank(one) < rank(other) ? -1 : 1))
  .map((route) => ({
    route,
    pattern: new RegExp(`^${route.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+')}$`),
  }))

/** The route that belongs to a path, or undefined. */
export const routeAt = (method: string, path: string): Route | undefined =>
  patterns.find(({ pattern }) => pattern.test(`${method} ${path}`))?.route
