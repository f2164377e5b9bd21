/** Which projections' rows the pages show: one table for all pages. Pure. */

const organization = '/organizations/:organization'
const overview = ['accounts', 'ledger_index', 'usage_buckets']

/**
 * The projections of the pages below an address; the first match counts. The names are those of `projections`. Empty: figures there come
 * from the event log itself, or are about the delay itself. Names of organizations may be shown, but no figure depends on them.
 */
const reads: readonly (readonly [below: string, names: readonly string[]])[] = [
  [`${organization}/usage`, ['accounts', 'ledger_index', 'usage_buckets']],
  [`${organization}/keys`, ['accounts', 'api_keys', 'key_usage', 'ledger_index']],
  [`${organization}/calls`, ['accounts', 'api_keys', 'ledger_lines', 'ledger_index']],
  [`${organization}/calls.csv`, ['accounts', 'ledger_lines']],
  [`${organization}/statement`, ['accounts', 'ledger_lines']],
  [`${organization}/months`, ['accounts', 'ledger_lines']],
  [`${organization}/credits`, ['accounts']],
  [`${organization}/pixel`, ['accounts', 'pixel_days']],
  [`${organization}/pick`, ['api_keys']],
  [`${organization}/commands`, ['accounts']],
  [organization, ['accounts', 'api_keys', 'key_usage', 'ledger_index', 'ledger_lines', 'usage_buckets']],
  ['/organizations', ['accounts', 'api_keys', 'key_usage']],
  ['/usage', overview],
  ['/calls', ['accounts', 'api_keys', 'ledger_lines']],
  ['/calls.csv', ['accounts', 'ledger_lines']],
  ['/months', ['accounts', 'ledger_index']],
  ['/months.csv', ['accounts', 'ledger_index']],
  ['/commands/audit', ['audit']],
  ['/commands/user', ['audit']],
  ['/search', ['accounts', 'api_keys', 'ledger_lines']],
  ['/reconcile', []],
  ['/events', []],
  ['/commands', []],
  ['/pick', []],
  ['/operations', []],
  ['/first-call', overview],
  ['/me', []],
  ['/waiting', []],
  ['/jobs', []],
]
/** The projections whose rows a page in the table of pages shows; null if the table does not say. */
export const readsOf = (url: string): readonly string[] | null =>
  url === '/'
    ? overview
    : (reads.find(([below]) => url === below || url.startsWith(`${below}/`))?.[1] ?? null)
