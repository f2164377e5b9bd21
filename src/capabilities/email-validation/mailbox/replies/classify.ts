/** Decides by the rules of `rules.ts` what a reply means for a mailbox. Not a judgement of the address. Pure. */
import type { MailboxOutcome } from '../../evidence.ts'
import type { SmtpReply } from '../smtp/reply.ts'
import { type ReplyRule, replyRules, type SmtpStage } from './rules.ts'
import { says } from './words.ts'

type ReplyVerdict = {
  readonly outcome: MailboxOutcome
  readonly retryAfterSeconds: number | null
}

const retrySecondsMin = 60
const retrySecondsMax = 900

/** Classifies one reply; do not call it for a 2xx reply before RCPT. */
export const classifyReply = (stage: SmtpStage, reply: SmtpReply): ReplyVerdict => {
  const text = textOf(reply)
  const rule = ruleFor(stage, reply, text)
  if (rule === undefined) return { outcome: 'cannot_verify', retryAfterSeconds: null }
  const { outcome, retrySeconds } = rule
  const retryAfterSeconds = retrySeconds === undefined ? null : (retrySecondsOf(reply) ?? retrySeconds)
  return { outcome, retryAfterSeconds }
}

/**
 * Whether the reply to a non-existent recipient shows that the domain accepts everything; null if it does not show it. A refusal counts
 * only if it names a missing mailbox: "too many recipients", a policy, or a code alone would otherwise make a catch-all domain
 * look like a normal one, and its mailboxes valid.
 */
export const catchAllOf = (reply: SmtpReply): boolean | null => {
  const rule = ruleFor('rcpt', reply)
  if (rule?.outcome === 'accepted') return true
  return rule?.outcome === 'mailbox_not_found' && rule.vague !== true ? false : null
}

/**
 * Whether the server refuses us rather than one mailbox: the circuit breaker counts this. A refusal before RCPT, 421, or a policy
 * at RCPT, which may concern one mailbox only; several in a row seldom do.
 */
export const refusesClient = (stage: SmtpStage, reply: SmtpReply): boolean =>
  reply.code === 421 ||
  (stage === 'greeting' && reply.code >= 400) ||
  (reply.code >= 500 && classifyReply(stage, reply).outcome === 'blocked')

/** The first rule that matches. */
export const ruleFor = (stage: SmtpStage, reply: SmtpReply, text = textOf(reply)): ReplyRule | undefined =>
  replyRules.find((rule) => fits(rule, { stage, code: String(reply.code), enhanced: detailOf(reply), text }))

type Facts = {
  readonly stage: SmtpStage
  readonly code: string
  readonly enhanced: string
  readonly text: string
}

const atRcpt: readonly SmtpStage[] = ['rcpt']

const fits = ({ stages = atRcpt, codes, enhanced, says: said, unless }: ReplyRule, facts: Facts): boolean =>
  stages.includes(facts.stage) &&
  codes.some((code) => facts.code.startsWith(code)) &&
  (enhanced === undefined || enhanced.some((begin) => begins(facts.enhanced, begin))) &&
  (said === undefined || said.every((sense) => says(facts.text, sense))) &&
  (unless === undefined || !unless.some((sense) => says(facts.text, sense)))

/** `7.` is a prefix of 7.1; `1.1` matches 1.1 and not 1.10. */
const begins = (enhanced: string, begin: string): boolean =>
  begin.endsWith('.') ? enhanced.startsWith(begin) : enhanced === begin

/** An enhanced code without its class, if it agrees with the reply code; otherwise empty. */
const detailOf = ({ enhancedCode }: SmtpReply): string => enhancedCode?.slice(2) ?? ''

/** "in 5 minutes", "for 300 seconds", "in 00:05:00"; null if no time is given. */
const retrySecondsOf = ({ lines }: SmtpReply): number | null => {
  const text = lines.join(' ').slice(0, textLengthMax).toLowerCase()
  const [, hours, minutes, seconds] = /\b(?:in|after|for) (\d{1,2}):(\d{2}):(\d{2})\b/.exec(text) ?? []
  if (hours !== undefined) return bounded(Number(hours) * 3_600 + Number(minutes) * 60 + Number(seconds))
  const [, amount, unit] =
    /\b(?:in|after|for|wait|within|least) (\d{1,5}) ?(s|secs?|seconds?|m|mins?|minutes?)\b/.exec(text) ?? []
  if (amount === undefined) return null
  return bounded(Number(amount) * (unit?.startsWith('m') ? 60 : 1))
}

const bounded = (seconds: number): number => Math.min(Math.max(seconds, retrySecondsMin), retrySecondsMax)

/** The meaningful words of a reply. */

/** How much is read of a text of up to 64 KiB. */
const textLengthMax = 2_000

const web = /https?:? ?\/\/\S*|\bwww\.\S*|\b[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,5}\/\S*/g
// recheck: of at most 2,000 characters (textLengthMax).
const address = /(?:"[^"@]{1,64}"|[^ <>()[\],;:"'=]+)@[a-z0-9-]+(?:\.[a-z0-9-]+)*/g
const angled = /<[^<>]*>/g
const numbers = /\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b/g
const codes = /\b[245]\.\d{1,3}\.\d{1,3}\b/g

/** Placeholders for any e-mail address and any IP address. */
const anAddress = 'anaddress'
const aMachine = 'amachine'

/**
 * The text in lower case, with one space between words and at each end: without punctuation and accents, and without
 * parts that may contain any word: web addresses, e-mail and IP addresses, everything in angle brackets, and codes.
 */
const textOf = ({ lines }: SmtpReply): string => {
  const text = decoded(lines.join(' ').slice(0, textLengthMax)).toLowerCase()
  const words = text
    .replace(web, ' ')
    .replace(address, ` ${anAddress} `)
    .replace(angled, (bracketed) => (bracketed.includes(anAddress) ? ` ${anAddress} ` : ' '))
    .replace(numbers, ` ${aMachine} `)
    .replace(codes, ' ')
  return ` ${plain(words).trim()} `
}

/** Replies are ASCII (RFC 5321 §4.2); servers that speak another language mostly speak UTF-8, the others Latin-1. */
const decoded = (octets: string): string => {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(octets, 'latin1'))
  } catch {
    return octets
  }
}

/** Only Latin letters lose their accents: in other scripts an accent makes another letter. */
const plain = (text: string): string =>
  text
    .normalize('NFD')
    .replace(/(?<=[a-z])[\u0300-\u036f]{1,4}/g, '')
    .normalize('NFC')
    .replaceAll('ł', 'l')
    .replaceAll('ß', 'ss')
    .replaceAll(/['’`]/g, '')
    .replaceAll(/[^\p{L}\p{N}]+/gu, ' ')
