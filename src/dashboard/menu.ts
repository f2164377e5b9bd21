/** The links of every page's menu, for the people who may open them. */
export const menu = [
  { href: '/', name: 'Overview', route: 'GET /' },
  { href: '/months', name: 'Months', route: 'GET /months' },
  { href: '/commands/price/show', name: 'Prices', route: 'GET /commands/price/show' },
  { href: '/commands/rerate/list', name: 'Re-rates', route: 'GET /commands/rerate/list' },
  { href: '/reconcile', name: 'Reconciliation', route: 'GET /reconcile' },
  { href: '/operations', name: 'Operations', route: 'GET /operations' },
  { href: '/events', name: 'Events', route: 'GET /events' },
  { href: '/commands/audit/list', name: 'Audit', route: 'GET /commands/audit/list' },
  { href: '/commands/user/list', name: 'Users', route: 'GET /commands/user/list' },
] as const satisfies readonly { readonly href: string; readonly name: string; readonly route: string }[]

export type MenuPlace = (typeof menu)[number]['href']

/** The pages of one organization: the path after its address, and the label. A person who may open one may open all of them. */
export const organizationMenu = [
  { path: '', name: 'Account' },
  { path: '/usage', name: 'Usage' },
  { path: '/statement', name: 'Statement' },
  { path: '/months', name: 'Months' },
  { path: '/lots', name: 'Lots' },
  { path: '/price/show', name: 'Prices' },
  { path: '/pixel', name: 'Pixel' },
  { path: '/webhooks', name: 'Webhooks' },
] as const satisfies readonly { readonly path: string; readonly name: string }[]

export type OrganizationPlace = (typeof organizationMenu)[number]['path']
