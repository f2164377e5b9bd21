type MenuLine = {
  readonly href: string
  readonly name: string
  readonly group: 'Customers' | 'Billing' | 'System' | null
}

/** The main menu. Pages show only the links that the user can open. */
export const menu = [
  { href: '/', name: 'Overview', group: null },
  { href: '/commands/org/list', name: 'Organizations', group: 'Customers' },
  { href: '/calls', name: 'Calls', group: 'Customers' },
  { href: '/usage', name: 'Usage', group: 'Customers' },
  { href: '/commands/ledger/charges', name: 'Months', group: 'Billing' },
  { href: '/commands/price/show', name: 'Prices', group: 'Billing' },
  { href: '/commands/rerate/list', name: 'Re-rates', group: 'Billing' },
  { href: '/commands/ledger/reconcile', name: 'Reconciliation', group: 'Billing' },
  { href: '/operations', name: 'Operations', group: 'System' },
  { href: '/commands/event-log/list', name: 'Events', group: 'System' },
  { href: '/commands/audit/list', name: 'Audit', group: 'System' },
  { href: '/commands/user/list', name: 'Users', group: 'System' },
  { href: '/commands', name: 'Commands', group: 'System' },
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
