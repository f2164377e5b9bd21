import { type Action, mayDo } from '../administration/roles.ts'
import type { UserRole } from '../events/users.ts'
import { actionOfPlace } from './declared.ts'

/** The action of each page without a declaration in administration. */
const actionOfPage = {
  'GET /': 'finance.read',
  // Makes a call with the demo's key.
  'POST /first-call': 'installation.change',
  'GET /organizations/:organization': 'accounts.read',
  'GET /organizations/:organization/usage': 'accounts.read',
  'GET /organizations/:organization/usage.csv': 'accounts.read',
  'GET /organizations/:organization/calls': 'accounts.read',
  'GET /organizations/:organization/calls.csv': 'accounts.read',
  'GET /organizations/:organization/calls/:request': 'accounts.read',
  'GET /organizations/:organization/calls/:request/receipt.json': 'ledgers.export',
  'GET /organizations/:organization/keys/:key': 'accounts.read',
  'GET /commands': 'finance.read',
  'GET /organizations/:organization/commands': 'accounts.read',
  'GET /organizations/:organization/pick/keys': 'accounts.read',
  // A search finds only pages that the user's role can open.
  'GET /search': 'accounts.read',
  'POST /search': 'accounts.read',
  'POST /search/choices': 'accounts.read',
  'GET /pick/organizations': 'finance.read',
  'GET /pick/keys': 'finance.read',
  'GET /pick/users': 'users.read',
  'GET /organizations': 'finance.read',
  'GET /usage': 'finance.read',
  'GET /calls': 'finance.read',
  'GET /calls.csv': 'finance.read',
  'GET /first-call': 'installation.change',
  'GET /events/at/:position': 'system.read',
  'GET /operations': 'system.read',
  // Every role may open a user's own pages.
  'GET /me': 'accounts.read',
  'POST /me/password': 'accounts.read',
  'POST /me/times': 'accounts.read',
  'POST /me/sessions/end': 'accounts.read',
  'GET /me/second-factor': 'accounts.read',
  'POST /me/second-factor': 'accounts.read',
  'POST /me/second-factor/codes': 'accounts.read',
  'POST /me/second-factor/remove': 'accounts.read',
  // The page shows a job only to users whose role can start it.
  'GET /jobs/:job': 'finance.read',
} as const satisfies Readonly<Record<string, Action>>

/** A route without a declaration in administration. */
export type Route = keyof typeof actionOfPage

/** The action that each page and form requires. Routes, menus and tests use this table, and a route that is not in it is refused. */
export const actionOfRoute: Readonly<Record<string, Action>> = { ...actionOfPage, ...actionOfPlace }

/** The action that a request requires; null if the request's route is not in the table. */
export const actionAt = (method: string, url: string): Action | null => {
  const name = `${method === 'HEAD' ? 'GET' : method} ${url}`
  return Object.hasOwn(actionOfRoute, name) ? (actionOfRoute[name] ?? null) : null
}

/** Whether a role can open a route. Commands outside an organization's pages apply to all organizations, so partners cannot use them. */
export const mayOpen = (role: UserRole, route: string): boolean => {
  const action = actionOfRoute[route]
  return action !== undefined && mayDo(role, action) && !(role === 'partner' && route.includes(' /commands/'))
}
