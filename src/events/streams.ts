import { hash } from 'node:crypto'

/**
 * Stream names: a category, a hyphen, an id without hyphens. Projections and live read models
 * select events by the category.
 */

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
] as const

/** The organization's ledger: grants, calls, facts, charges and adjustments in one order. */
export const ledgerStream = (organizationId: string): string => `ledger-${organizationId}`

/** The events of one API key. */
export const keyStream = (keyId: string): string => `key-${keyId}`

/** All price books ever published. */
export const priceBookStream = 'pricebook'

/** Everything known about one person: fetches, misses, erasure. */
export const profileStream = (subjectId: string): string => `profile-${subjectId}`

/** The pixel rules of one organization. */
export const pixelStream = (organizationId: string): string => `pixel-${organizationId}`

/** The beginning of the event log, and the installation key, wrapped. */
export const installationStream = 'installation'

/** Operators' actions. */
export const operatorStream = 'operator'

/** Sign-ins to the dashboard of one month (UTC). They are separate from operators' actions, whose stream is read at every command. */
export const signInStream = (instant: string): string => `signin-${instant.slice(0, 7).replace('-', '')}`

/** The signed checkpoints of the whole log, and the keys that sign them. */
export const checkpointStream = 'checkpoint'

/** One re-rate: its plan, and the decisions and results that follow. */
export const rerateStream = (run: string): string => `rerate-${run}`

/** An operator's reference of an organization. The name holds its digest, because a reference may hold anything. */
export const referenceStream = (organizationId: string, reference: string): string =>
  `reference-${hash('sha256', `${organizationId}\n${reference}`, 'hex')}`

/** The organization whose ledger this stream is; null for any other stream. */
export const organizationOfStream = (stream: string): string | null =>
  stream.startsWith('ledger-') ? stream.slice('ledger-'.length) : null

/** The part before the first hyphen; the whole name if there is none. */
const categoryOf = (stream: string): string => {
  const hyphen = stream.indexOf('-')
  return hyphen === -1 ? stream : stream.slice(0, hyphen)
}

/** Whether a stream belongs to this service. On a shared server, others' names may look similar. */
export const isStreamOfOurs = (stream: string): boolean =>
  streamCategories.some((category) => category === categoryOf(stream)) && stream.split('-').length <= 2
