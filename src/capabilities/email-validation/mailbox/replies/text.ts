/** The meaningful words of a reply. Pure. */
import type { SmtpReply } from '../smtp/reply.ts'

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
export const textOf = ({ lines }: SmtpReply): string => {
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
