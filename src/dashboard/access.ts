import { type Action, mayDo } from '../administration/roles.ts'
import type { UserRole } from '../events/users.ts'

/**
 * Which action of the table of roles each page and each form is: the one table that routes, menus and tests read. A route that is
 * not in it is not opened. Pure.
 */
export const actionOfRoute = {
  'GET /': 'finance.read',
  'GET /organizations/new': 'organizations.change',
  'POST /organizations/new': 'organizations.change',
  'GET /organizations/:organization': 'accounts.read',
  'GET /organizations/:organization/usage': 'accounts.read',
  'GET /organizations/:organization/usage.csv': 'accounts.read',
  'GET /organizations/:organization/statement': 'accounts.read',
  'GET /organizations/:organization/months': 'accounts.read',
  'GET /organizations/:organization/months/:month': 'accounts.read',
  'GET /organizations/:organization/months/:month/statement.csv': 'ledgers.export',
  'GET /organizations/:organization/months/:month/statement.jsonl': 'ledgers.export',
  'POST /organizations/:organization/months/:month/close': 'ledgers.change',
  'GET /organizations/:organization/lots': 'accounts.read',
  'GET /organizations/:organization/lots/:grant/void': 'credits.change',
  'POST /organizations/:organization/lots/:grant/void': 'credits.change',
  'GET /organizations/:organization/credits/grant': 'credits.change',
  'POST /organizations/:organization/credits/grant': 'credits.change',
  'POST /organizations/:organization/credits/grant/confirmed': 'credits.change',
  'GET /organizations/:organization/credits/adjust': 'credits.change',
  'POST /organizations/:organization/credits/adjust': 'credits.change',
  'POST /organizations/:organization/credits/adjust/confirmed': 'credits.change',
  'GET /organizations/:organization/credits/threshold': 'credits.change',
  'POST /organizations/:organization/credits/threshold': 'credits.change',
  'POST /organizations/:organization/credits/threshold/confirmed': 'credits.change',
  'GET /organizations/:organization/calls/:request': 'accounts.read',
  'GET /organizations/:organization/calls/:request/receipt.json': 'ledgers.export',
  'GET /organizations/:organization/calls/:request/refund': 'credits.change',
  'POST /organizations/:organization/calls/:request/refund': 'credits.change',
  'POST /organizations/:organization/calls/:request/refund/confirmed': 'credits.change',
  'GET /organizations/:organization/prices': 'accounts.read',
  'POST /organizations/:organization/prices': 'prices.change',
  'POST /organizations/:organization/prices/withdraw': 'prices.change',
  'GET /organizations/:organization/keys/new': 'keys.change',
  'POST /organizations/:organization/keys/new': 'keys.change',
  'GET /organizations/:organization/keys/:key': 'accounts.read',
  'POST /organizations/:organization/keys/:key/limits': 'keys.change',
  'GET /organizations/:organization/keys/:key/rotate': 'keys.change',
  'POST /organizations/:organization/keys/:key/rotate': 'keys.change',
  'GET /organizations/:organization/keys/:key/revoke': 'keys.change',
  'POST /organizations/:organization/keys/:key/revoke': 'keys.change',
  'GET /organizations/:organization/webhooks': 'accounts.read',
  'POST /organizations/:organization/webhooks': 'webhooks.change',
  'GET /organizations/:organization/webhooks/:webhook': 'accounts.read',
  'POST /organizations/:organization/webhooks/:webhook/test': 'webhooks.change',
  'POST /organizations/:organization/webhooks/:webhook/pause': 'webhooks.change',
  'POST /organizations/:organization/webhooks/:webhook/resume': 'webhooks.change',
  'POST /organizations/:organization/webhooks/:webhook/resend': 'webhooks.change',
  'POST /organizations/:organization/webhooks/:webhook/rotate': 'webhooks.change',
  'GET /organizations/:organization/webhooks/:webhook/delete': 'webhooks.change',
  'POST /organizations/:organization/webhooks/:webhook/delete': 'webhooks.change',
  'GET /organizations/:organization/pixel': 'accounts.read',
  'POST /organizations/:organization/pixel/limit': 'pixel.change',
  'POST /organizations/:organization/pixel/unlimit': 'pixel.change',
  'POST /organizations/:organization/pixel/block': 'pixel.change',
  'POST /organizations/:organization/pixel/unblock': 'pixel.change',
  'GET /prices': 'accounts.read',
  'GET /prices/:proposal': 'finance.read',
  'POST /prices/:proposal/approve': 'prices.change',
  'GET /prices/:name/cost': 'finance.read',
  'GET /prices/new': 'prices.change',
  'POST /prices/new': 'prices.change',
  'GET /prices/:name/withdraw': 'prices.change',
  'POST /prices/:name/withdraw': 'prices.change',
  'GET /rerates': 'finance.read',
  'GET /rerates/:run': 'finance.read',
  'GET /rerates/new': 'rerates.change',
  'POST /rerates/new': 'rerates.change',
  'POST /rerates/:run/approve': 'rerates.change',
  'POST /rerates/:run/apply': 'rerates.change',
  'POST /rerates/:run/abandon': 'rerates.change',
  'GET /reconcile': 'finance.read',
  'POST /reconcile': 'ledgers.change',
  'GET /audit': 'audit.read',
  'GET /events': 'system.read',
  'GET /events/at/:position': 'system.read',
  'GET /events/streams/:stream': 'system.read',
  'GET /events/streams/:stream/:revision': 'system.read',
  'GET /operations': 'system.read',
  'POST /operations/jobs/:job/run': 'jobs.run',
  'GET /operations/projections/:projection': 'system.read',
  'POST /operations/projections/:projection/rebuild': 'projections.change',
  'POST /operations/projections/:projection/cancel': 'projections.change',
  'POST /operations/projections/:projection/rollback': 'projections.change',
  'POST /operations/projections/:projection/retry': 'projections.change',
  'POST /operations/projections/:projection/release': 'projections.change',
  // One's own, whoever one is.
  'GET /me': 'accounts.read',
  'POST /me/password': 'accounts.read',
  'POST /me/sessions/end': 'accounts.read',
  // What goes on behind a page is shown to the person alone who began it.
  'GET /waiting/:work': 'accounts.read',
  'GET /waiting/:work/progress': 'accounts.read',
} as const satisfies Readonly<Record<string, Action>>

export type Route = keyof typeof actionOfRoute

const isRoute = (name: string): name is Route => Object.hasOwn(actionOfRoute, name)

/** Null: no one may. */
export const actionAt = (method: string, url: string): Action | null => {
  const name = `${method === 'HEAD' ? 'GET' : method} ${url}`
  return isRoute(name) ? actionOfRoute[name] : null
}

export const mayOpen = (role: UserRole, route: Route): boolean => mayDo(role, actionOfRoute[route])
