/**
 * What a reply means for a mailbox: by enhanced code, then reply code, then text. Not a judgement of the address.
 *
 * The asymmetry is deliberate: a text may keep us from calling a mailbox missing, and never makes us do so, because a refusal of
 * us (a blocklist, a missing PTR record, a policy) says nothing about the mailbox, and is worded in a thousand ways.
 */
import type { MailboxOutcome } from '../evidence.ts'
import type { SmtpReply } from './smtp-reply.ts'

export type SmtpStage = 'greeting' | 'ehlo' | 'mail' | 'rcpt'

type ReplyVerdict = {
  readonly outcome: MailboxOutcome
  readonly retryAfterSeconds: number | null
}

/** Greylists let a second attempt pass after 5 minutes as a rule (Postgrey's default). */
const greylistedSeconds = 300
const temporarySeconds = 900
const retrySecondsMin = 60
const retrySecondsMax = 900
/** Of a text of up to 64 KiB, what is looked at. */
const textLengthMax = 2_000

const greylistText =
  /gr[ae]y.?list|gr[ae]y-?listing|try again in \d|come back (?:later|in)|first (?:time|attempt|contact)/
const laterText =
  /try (?:it )?again|retry|come back|temporar(?:y|ily) (?:reject|defer|delay)|deferred|delayed|please wait/
const quotaText =
  /quota|mailbox (?:is )?full|full mailbox|over ?limit|storage (?:limit|exceeded|full)|exceeded (?:the )?storage|out of space/
const disabledText =
  // recheck: of at most 2,000 characters (textLengthMax).
  /(?:account|mailbox|user|recipient|address)[^.]{0,40}\b(?:disabled|inactive|suspended|deactivated|locked)\b/
const transientText = /temporar|try (?:it )?again|later\b|timed? ?out/
/** The server's own trouble. A mailbox that is unavailable is none: that is RFC 5321's own text for one that is not there. */
const troubleText = new RegExp(
  [
    '(?:system|internal|server|backend|database|directory|ldap|lookup|configuration|processing) (?:server )?(?:error|failure)',
    '(?:service|server|system|backend|database|directory|ldap) (?:is |currently |temporarily )*(?:unavailable|unreachable|down|busy|not available)',
    "(?:unable to|can ?not|can't|could ?n[o']t) (?:be )?verif(?:y|ied)",
  ].join('|'),
)
/** Words that are about the client even where the enhanced code is about a mailbox: a server that numbers all refusals alike. */
const clientText = /\bclient host\b.{0,80}\b(?:blocked|rejected|listed)\b|\bblocked using\b/
/** A refusal that says whom it is about. */
const mailboxText = /\b(?:users?|mailbox(?:es)?|recipients?|accounts?|address(?:es|ee)?|unknown|no such)\b/
/** A refusal of the client, the sender or the message: of anything but the mailbox. */
const policyText = new RegExp(
  [
    'spam|spf\\b|dkim|dmarc|virus|abus',
    'block(?:ed|ing|list)|block list|black ?list|blacklist|deny ?list|dnsbl|\\brbl\\b|\\bdbl\\b|banned|listed (?:at|in|by|on)',
    'sorbs|uceprotect|barracuda|proofpoint|abusix|mimecast|senderscore|cloudmark',
    'polic(?:y|ies)|reputation|not (?:permitted|allowed|authori[sz]ed|accepted from)|unauthori[sz]ed|prohibited',
    'access (?:is |was )?(?:denied|rejected|refused)|denied by|permission denied|forbidden|administrative',
    'reverse ?(?:dns|lookup|host)|\\bptr\\b|\\brdns\\b|\\bhelo\\b|\\behlo\\b|hostname|client host|dynamic',
    'your (?:host|ip|server|network|address|domain|message|mail)|ip address|client ip|\\bfrom ip\\b',
    'authentica|auth required|log ?in|relay|rcpthosts|sender|gateway|open proxy',
    'starttls|\\btls\\b|encrypt|gr[ae]y.?list|rate.?limit|too (?:many|much|fast)|throttl|exceeded|verification failed',
    'suspicious|firewall|countr(?:y|ies)',
    '\\bconnections?\\b|\\baccept(?:s|ed|ing)? (?:[a-z-]{1,20} ){0,2}from\\b|limit (?:is |was |has been )?reached|maximum number',
    '\\b(?:(?:e-?)?mail|message|session) (?:is |was |has been )?(?:rejected|refused|declined)',
    '\\b(?:null|empty) (?:envelope|return|reverse)|\\bbounces?\\b|\\bdsns?\\b|\\bcall-?(?:out|back)s?\\b',
  ].join('|'),
)

/** Classifies one reply. Pure; a 2xx reply before RCPT is not to be asked about. */
export const classifyReply = (stage: SmtpStage, reply: SmtpReply): ReplyVerdict => {
  const text = textOf(reply)
  const kind = Math.floor(reply.code / 100)
  if (kind === 4) return temporaryOf(stage, reply, text)
  if (kind === 5 && reply.enhancedCode === '5.6.7') return verdict('smtputf8_unsupported')
  if (stage !== 'rcpt') return verdict(kind === 5 ? 'blocked' : 'cannot_verify')
  if (kind === 5) return verdict(permanentOf(reply, text))
  // 251 forwards; 252 takes the message without knowing the mailbox (RFC 5321 §3.5.3).
  return verdict(reply.code === 250 || reply.code === 251 ? 'accepted' : 'cannot_verify')
}

/**
 * Whether the reply to a recipient nobody has says that the domain takes everything; null where it does not say. A refusal counts
 * only as one of a missing mailbox, and only where its code or its text says so: "too many recipients" or a policy would
 * otherwise make a catch-all domain look like none, and its mailboxes valid.
 */
export const catchAllOf = (reply: SmtpReply): boolean | null => {
  const { outcome } = classifyReply('rcpt', reply)
  if (outcome === 'accepted') return true
  if (outcome !== 'mailbox_not_found' && outcome !== 'mailbox_disabled') return null
  return reply.enhancedCode?.startsWith('5.1.') || mailboxText.test(textOf(reply)) ? false : null
}

/**
 * Whether the server refuses us rather than one mailbox: what a circuit breaker counts. A refusal before RCPT, 421, or a policy
 * at RCPT, which may concern one mailbox only; several in a row seldom do.
 */
export const refusesClient = (stage: SmtpStage, reply: SmtpReply): boolean =>
  reply.code === 421 ||
  (stage === 'greeting' && reply.code >= 400) ||
  (reply.code >= 500 && classifyReply(stage, reply).outcome === 'blocked')

const verdict = (outcome: MailboxOutcome, retryAfterSeconds: number | null = null): ReplyVerdict => ({
  outcome,
  retryAfterSeconds,
})

const temporaryOf = (stage: SmtpStage, { code, enhancedCode }: SmtpReply, text: string): ReplyVerdict => {
  if (stage === 'rcpt' && enhancedCode === '4.2.2') return verdict('mailbox_full')
  const decisive = enhancedCode !== null && !['4.0.0', '4.2.0', '4.3.1'].includes(enhancedCode)
  if (stage === 'rcpt' && code === 452 && !decisive && quotaText.test(text)) return verdict('mailbox_full')
  const greylisted =
    (stage === 'rcpt' || stage === 'mail') &&
    (code === 450 || code === 451) &&
    (greylistText.test(text) ||
      (!policyText.test(text) && enhancedCode === '4.2.0' && code === 450) ||
      (!policyText.test(text) && enhancedCode === '4.7.1' && laterText.test(text)))
  return greylisted
    ? verdict('greylisted', retrySecondsOf(text) ?? greylistedSeconds)
    : verdict('temporary_failure', retrySecondsOf(text) ?? temporarySeconds)
}

const permanentOf = ({ code, enhancedCode }: SmtpReply, text: string): MailboxOutcome => {
  const [, subject = '', detail = ''] = enhancedCode?.split('.') ?? []
  if (subject === '7') return 'blocked'
  if (subject === '1' && ['1', '2', '3', '6', '10'].includes(detail))
    return clientText.test(text) ? 'blocked' : 'mailbox_not_found'
  // They concern the sender's address.
  if (subject === '1' && (detail === '7' || detail === '8')) return 'blocked'
  // Gmail's ReceivingRatePerm: a mailbox that gets more than it may is one that is there.
  if (subject === '2' && detail === '1')
    return /\b(?:at a rate|too quickly)\b/.test(text) ? 'cannot_verify' : 'mailbox_disabled'
  if (subject === '2' && detail === '2') return 'mailbox_full'
  // Exchange Online's directory-based edge blocking: the recipient is not in the directory, whatever its words suggest.
  if (enhancedCode === '5.4.1' && text.includes('recipient address rejected: access denied'))
    return 'mailbox_not_found'
  // 5.0.0, 5.1.0, 5.2.0 and 5.5.0 mean "other" and leave it to the reply code; every further code says something else.
  if (enhancedCode !== null && !['5.0.0', '5.1.0', '5.2.0', '5.5.0'].includes(enhancedCode))
    return policyText.test(text) ? 'blocked' : 'cannot_verify'
  return bareOf(code, text)
}

const bareOf = (code: number, text: string): MailboxOutcome => {
  if (code === 552) return quotaText.test(text) || !policyText.test(text) ? 'mailbox_full' : 'blocked'
  if (code === 530) return 'blocked'
  if (code !== 550 && code !== 551 && code !== 553) return policyText.test(text) ? 'blocked' : 'cannot_verify'
  if (quotaText.test(text)) return 'mailbox_full'
  if (policyText.test(text)) return 'blocked'
  if (transientText.test(text) || troubleText.test(text)) return 'cannot_verify'
  return disabledText.test(text) ? 'mailbox_disabled' : 'mailbox_not_found'
}

/** Lower case, without the addresses it echoes: an address may hold any word. */
const textOf = ({ lines }: SmtpReply): string =>
  lines
    .join(' ')
    .slice(0, textLengthMax)
    .toLowerCase()
    .replaceAll(/<[^<>]*>/g, ' ')
    .split(' ')
    .filter((word) => !word.includes('@'))
    .join(' ')

/** "in 5 minutes", "for 300 seconds", "in 00:05:00"; null where no time is told. */
const retrySecondsOf = (text: string): number | null => {
  const [, hours, minutes, seconds] = /\b(?:in|after|for) (\d{1,2}):(\d{2}):(\d{2})\b/.exec(text) ?? []
  if (hours !== undefined) return bounded(Number(hours) * 3_600 + Number(minutes) * 60 + Number(seconds))
  const [, amount, unit] =
    /\b(?:in|after|for|wait|within|least) (\d{1,5}) ?(s|secs?|seconds?|m|mins?|minutes?)\b/.exec(text) ?? []
  if (amount === undefined) return null
  return bounded(Number(amount) * (unit?.startsWith('m') ? 60 : 1))
}

const bounded = (seconds: number): number => Math.min(Math.max(seconds, retrySecondsMin), retrySecondsMax)
