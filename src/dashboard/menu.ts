type MenuLine = {
  readonly href: string
  readonly name: string
  readonly route: string
  readonly group: 'Customers' | 'Billing' | 'System' | null
}

/** The main menu. Pages show only the links that the user can open. */
export const menu = [
  { href: '/', name: 'Overview', route: 'GET /', group: null },
  { href: '/commands/org/list', name: 'Organizations', route: 'GET /commands/org/list', group: 'Customers' },
  { href: '/calls', name: 'Calls', route: 'GET /calls', group: 'Customers' },
  { href: '/usage', name: 'Usage', route: 'GET /usage', group: 'Customers' },
  {
    href: '/commands/ledger/charges',
    name: 'Months',
    route: 'GET /commands/ledger/charges',
    group: 'Billing',
  },
  { href: '/commands/price/show', name: 'Prices', route: 'GET /commands/price/show', group: 'Billing' },
  { href: '/commands/rerate/list', name: 'Re-rates', route: 'GET /commands/rerate/list', group: 'Billing' },
  {
    href: '/commands/ledger/reconcile',
    name: 'Reconciliation',
    route: 'GET /commands/ledger/reconcile',
    group: 'Billing',
  },
  { href: '/operations', name: 'Operations', route: 'GET /operations', group: 'System' },
  {
    href: '/commands/event-log/list',
    name: 'Events',
    route: 'GET /commands/event-log/list',
    group: 'System',
  },
  { href: '/commands/audit/list', name: 'Audit', route: 'GET /commands/audit/list', group: 'System' },
  { href: '/commands/user/list', name: 'Users', route: 'GET /commands/user/list', group: 'System' },
  { href: '/commands', name: 'Commands', route: 'GET /commands', group: 'System' },
] as const satisfies readonly MenuLine[]

export type MenuPlace = (typeof menu)[number]['href']

/** The menu of an organization's pages. A user who can open one of these pages can open all of them. */
export const organizationMenu = [
  { path: '', name: 'Account' },
  { path: '/calls', name: 'Calls' },
  { path: '/usage', name: 'Usage' },
  { path: '/ledger/lines', name: 'Statement' },
  { path: '/ledger/months', name: 'Months' },
  { path: '/credits/lots', name: 'Lots' },
  { path: '/price/show', name: 'Prices' },
  { path: '/pixel/rules', name: 'Pixel' },
  { path: '/webhook/list', name: 'Webhooks' },
  { path: '/commands', name: 'Commands' },
] as const satisfies readonly { readonly path: string; readonly name: string }[]

export type OrganizationPlace = (typeof organizationMenu)[number]['path']
