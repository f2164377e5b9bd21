import { hash } from 'node:crypto'

/** A stream name consists of a category, a hyphen, and an id without hyphens. Projections and in-memory models select events by category. */

const streamCategories = [
  'installation',
  'ledger',
  'reference',
  'key',
  'pricebook',
  'profile',
  'pixel',
  'operator',
  'checkpoint',
  'rerate',
  'signin',
  'reconciled',
] as const

/** An organization's ledger: its grants, calls, charges and adjustments, in one order. */
export const ledgerStream = (organizationId: string): string => `ledger-${organizationId}`

export const keyStream = (keyId: string): string => `key-${keyId}`

export const priceBookStream = 'pricebook'

/** The events about one person: fetches, misses and the erasure. */
export const profileStream = (subjectId: string): string => `profile-${subjectId}`

export const pixelStream = (organizationId: string): string => `pixel-${organizationId}`

/** The beginning of the event log, and the wrapped installation key. */
export const installationStream = 'installation'

export const operatorStream = 'operator'

/** The dashboard sign-ins of one month (UTC). They are not in the operators' stream, because every command reads that stream. */
export const signInStream = (instant: string): string => `signin-${instant.slice(0, 7).replace('-', '')}`

/** The revisions up to which ledgers agreed in one month (UTC). They are not in the operators' stream, because every command reads that stream. */
export const reconciledStream = (instant: string): string =>
  `reconciled-${instant.slice(0, 7).replace('-', '')}`

/** The signed checkpoints of the log, and the announced signing keys. */
export const checkpointStream = 'checkpoint'

/** One re-rate: its plan, its decisions and its results. */
export const rerateStream = (run: string): string => `rerate-${run}`

/** The stream that reserves an operator's reference. Its name contains a digest, because a reference can contain any character. */
export const referenceStream = (organizationId: string, reference: string): string =>
  `reference-${hash('sha256', `${organizationId}\n${reference}`, 'hex')}`

/** The organization of a ledger stream. Null: it is not a ledger stream. */
export const organizationOfStream = (stream: string): string | null =>
  stream.startsWith('ledger-') ? stream.slice('ledger-'.length) : null

/** The part before the first hyphen, or the whole name. */
const categoryOf = (stream: string): string => {
  const hyphen = stream.indexOf('-')
  return hyphen === -1 ? stream : stream.slice(0, hyphen)
}

/** Whether a stream has a name that this service uses. On a shared server, other software can use similar names. */
export const isStreamOfOurs = (stream: string): boolean =>
  streamCategories.some((category) => category === categoryOf(stream)) && stream.split('-').length <= 2
