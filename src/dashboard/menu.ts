/** Where the menu of every page leads. */
export const menu = [
  { href: '/', name: 'Overview' },
  { href: '/prices', name: 'Prices' },
  { href: '/rerates', name: 'Re-rates' },
  { href: '/reconcile', name: 'Reconciliation' },
] as const satisfies readonly { readonly href: string; readonly name: string }[]

export type MenuPlace = (typeof menu)[number]['href']

/** The pages of one organization: what follows its address, and what it is called. */
export const organizationMenu = [
  { path: '', name: 'Account' },
  { path: '/usage', name: 'Usage' },
  { path: '/statement', name: 'Statement' },
  { path: '/months', name: 'Months' },
  { path: '/lots', name: 'Lots' },
  { path: '/prices', name: 'Own prices' },
] as const satisfies readonly { readonly path: string; readonly name: string }[]

export type OrganizationPlace = (typeof organizationMenu)[number]['path']
