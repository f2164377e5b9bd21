/** The table of routes, as a browser meets it: which are pages, and which route an address is. Pure. */
import { actionOfRoute, type Route } from '../../../src/dashboard/access.ts'

export const routes = Object.keys(actionOfRoute) as Route[]

/** There only while something is worked out, and streams. */
export const passing: readonly Route[] = [
  'GET /waiting/:work/progress',
  'GET /jobs/:job',
  'GET /jobs/:job/progress',
]

/** What is downloaded, not looked at. */
export const isFile = (route: Route): boolean => /(\.[a-z]+|\/file)$/.test(route)

/** A part of a page, for its scripts. */
const isPart = (route: Route): boolean => route.includes('/pick/')

export const pageRoutes = routes.filter(
  (route) => route.startsWith('GET ') && !isFile(route) && !isPart(route) && !passing.includes(route),
)
export const fileRoutes = routes.filter(isFile)
export const formRoutes = routes.filter((route) => route.startsWith('POST '))

/** How specific a route is: as the router does, a fixed part goes before a parameter. */
const rank = (route: Route): string => route.replaceAll(/:\w+/g, '~')

/** Of an address; undefined: of none. */
export const routeAt = (method: string, path: string): Route | undefined =>
  routes
    .filter((route) => {
      const [own, url = ''] = route.split(' ')
      return (
        own === method &&
        new RegExp(`^${url.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+')}$`).test(path)
      )
    })
    .sort((one, other) => (rank(one) < rank(other) ? -1 : 1))[0]
