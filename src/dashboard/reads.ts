/** Whose rows the pages show: one table for all of them. Pure. */

const organization = '/organizations/:organization'

/**
 * What the pages below an address read; the first that fits. The names are those of `projections`. None: figures there come from the
 * event log itself, or are about this very lateness; what an organization is called may stand beside them, and no figure depends on it.
 */
const reads: readonly (readonly [below: string, names: readonly string[]])[] = [
  ['/organizations/new', []],
  [`${organization}/usage`, ['accounts', 'ledger_index', 'ledger_lines']],
  [`${organization}/keys`, ['accounts', 'api_keys', 'key_usage', 'ledger_index']],
  [`${organization}/calls`, ['accounts', 'ledger_lines', 'ledger_index']],
  [`${organization}/statement`, ['accounts', 'ledger_lines']],
  [`${organization}/months`, ['accounts', 'ledger_lines']],
  [`${organization}/lots`, ['accounts']],
  [`${organization}/prices`, ['accounts']],
  [`${organization}/pixel`, ['accounts', 'pixel_days']],
  [organization, ['accounts', 'api_keys', 'key_usage', 'ledger_lines']],
  ['/months', ['accounts', 'ledger_index']],
  ['/months.csv', ['accounts', 'ledger_index']],
  ['/audit', ['audit']],
  ['/users', ['audit']],
  // A simulated cost rates the calls of the log, after the accounts have caught up with it.
  ['/prices', []],
  ['/rerates', []],
  ['/reconcile', []],
  ['/events', []],
  ['/invite', []],
  ['/operations', []],
  ['/me', []],
  ['/waiting', []],
]
const overview = ['accounts', 'api_keys', 'key_usage']

/** The projections whose rows the page at an address of the table of pages shows; null where that is not said of it. */
export const readsOf = (url: string): readonly string[] | null =>
  url === '/'
    ? overview
    : (reads.find(([below]) => url === below || url.startsWith(`${below}/`))?.[1] ?? null)
