/** Applies the rules of `rules.ts` to a reply. Pure. */
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
 * Whether a reply to a non-existent recipient shows that the domain accepts every recipient; null if the reply does not show this. A refusal
 * counts only if it names a missing mailbox. If "too many recipients" or a policy counted, a catch-all domain would be taken for a normal
 * one, and its mailboxes for valid ones.
 */
export const catchAllOf = (reply: SmtpReply): boolean | null => {
  const rule = ruleFor('rcpt', reply)
  if (rule?.outcome === 'accepted') return true
  return rule?.outcome === 'mailbox_not_found' && rule.vague !== true ? false : null
}

/**
 * Whether the server refuses our client rather than one mailbox. The circuit breaker counts these replies. A policy at RCPT can concern a
 * single mailbox, but several such replies in a row rarely do.
 */
export const refusesClient = (stage: SmtpStage, reply: SmtpReply): boolean =>
  reply.code === 421 ||
  (stage === 'greeting' && reply.code >= 400) ||
  (reply.code >= 500 && classifyReply(stage, reply).outcome === 'blocked')

/** Returns the first rule that matches. */
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

const detailOf = ({ enhancedCode }: SmtpReply): string => enhancedCode?.slice(2) ?? ''

/** Reads "in 5 minutes", "for 300 seconds" or "in 00:05:00"; null if the reply states no time. */
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

/** The maximum number of characters that are read. A reply can have 64 KiB. */
const textLengthMax = 2_000

const web = /https?:? ?\/\/\S*|\bwww\.\S*|\b[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,5}\/\S*/g
// recheck: the text has at most 2,000 characters (textLengthMax).
const address = /(?:"[^"@]{1,64}"|[^ <>()[\],;:"'=]+)@[a-z0-9-]+(?:\.[a-z0-9-]+)*/g
const angled = /<[^<>]*>/g
const numbers = /\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b/g
const codes = /\b[245]\.\d{1,3}\.\d{1,3}\b/g

/** These words replace every e-mail address and every IP address. */
const anAddress = 'anaddress'
const aMachine = 'amachine'

/**
 * The text in lower case without punctuation and accents, with one space between words and at each end. Parts that can contain
 * any word are removed or replaced: web, e-mail and IP addresses, codes, and everything in angle brackets.
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

/** RFC 5321 §4.2 allows only ASCII, but servers with replies in other languages send UTF-8 or, less often, Latin-1. */
const decoded = (octets: string): string => {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(octets, 'latin1'))
  } catch {
    return octets
  }
}

/** Only Latin letters lose their accents, because in other scripts a letter with an accent is a different letter. */
const plain = (text: string): string =>
  text
    .normalize('NFD')
    .replace(/(?<=[a-z])[\u0300-\u036f]{1,4}/g, '')
    .normalize('NFC')
    .replaceAll('ł', 'l')
    .replaceAll('ß', 'ss')
    .replaceAll(/['’`]/g, '')
    .replaceAll(/[^\p{L}\p{N}]+/gu, ' ')
