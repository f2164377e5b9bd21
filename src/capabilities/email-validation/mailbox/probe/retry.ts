import type { EpochSealer } from '../../../../guard/secrets/secrets.ts'
import type { MailExchangers } from '../../dns/mail-exchangers.ts'
import type { EmailAddress, MailboxEvidence, MailboxOutcome } from '../../evidence.ts'
import { parseEmail } from '../../syntax/parse.ts'
import type { MailboxChecks } from '../checks.ts'
import type { MailboxProbe } from './probe.ts'

/** The purpose of the seal on the addresses in retry jobs. */
export const retrySealPurpose = 'mailbox-retry'

/** Only outcomes about the mailbox itself are stored. Any other outcome would prevent the next call from asking again. */
const conclusive: ReadonlySet<MailboxOutcome> = new Set([
  'accepted',
  'mailbox_not_found',
  'mailbox_disabled',
  'mailbox_full',
])

/** Checks a mailbox again, and stores a conclusive result for the next call. Returns true if there was one. `data` comes from `later`. */
export const askAgain = async (
  { exchangers, mailbox, checks, sealer, clock }: AskAgainParts,
  data: string,
): Promise<boolean> => {
  const [mailboxHmac = '', sealed = ''] = data.split(':')
  const text = sealer.open(sealed, mailboxHmac)
  const parsed = text === null ? null : parseEmail(text)
  if (parsed?.valid !== true)
    throw new Error(
      'the address of a mailbox to check again cannot be decrypted, because its epoch key no longer exists',
    )
  const evidence = await askServers({ exchangers, mailbox }, parsed.address)
  if (evidence === null || !conclusive.has(evidence.outcome)) return false
  if (evidence.outcome === 'accepted' && evidence.catchAll === null) return false
  await checks.keep(mailboxHmac, { evidence, checkedAt: new Date(clock.now()).toISOString() })
  return true
}

type AskAgainParts = {
  readonly exchangers: Pick<MailExchangers, 'find'>
  readonly mailbox: Pick<MailboxProbe, 'probe'>
  readonly checks: MailboxChecks
  readonly sealer: EpochSealer
  readonly clock: { now(): number }
}

const askServers = async (
  { exchangers, mailbox }: Pick<AskAgainParts, 'exchangers' | 'mailbox'>,
  address: EmailAddress,
): Promise<MailboxEvidence | null> => {
  const mx = await exchangers.find(address.asciiDomain)
  return mx.kind === 'found' ? mailbox.probe(address, mx, { background: true }) : null
}
