/** The commands that we send. Their parts are checked again here, because a mistake would allow a caller to inject commands. */
import assert from 'node:assert/strict'

/** RFC 5321 §4.5.3.1.4 plus the ten octets that SMTPUTF8 adds (RFC 6531 §3.4), including the line end. */
const commandOctetsMax = 522

const atomText = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~\\-\\u0080-\\u{10ffff}]+"
const dotString = new RegExp(`^${atomText}(?:\\.${atomText})*$`, 'u')
const quotedString = /^"(?:[ !#-[\]-~\u0080-\u{10ffff}]|\\[ -~])*"$/u
const hostName = /^[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?$/
/** C1 controls are included, because they are not allowed in mailbox names. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters must not be there
const control = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/u

const lineOf = (text: string): string => {
  assert(!control.test(text), 'an SMTP command contains a control character')
  assert(Buffer.byteLength(text) + 2 <= commandOctetsMax, 'an SMTP command is too long')
  return `${text}\r\n`
}

/** Returns `local@domain`. @throws AssertionError if this is not an RFC 5321 Mailbox with a domain name of ASCII labels. */
export const mailboxOf = ({ localPart, asciiDomain }: { localPart: string; asciiDomain: string }): string => {
  assert(!control.test(localPart), 'a local part contains a control character')
  assert(dotString.test(localPart) || quotedString.test(localPart), 'a local part is not well-formed')
  assert(hostName.test(asciiDomain), 'a domain is not a host name')
  return `${localPart}@${asciiDomain}`
}

const heloName = (name: string): string => {
  assert(
    hostName.test(name) || /^\[[0-9A-Za-z:.]+\]$/.test(name),
    'the HELO name is neither a host name nor an address literal',
  )
  return name
}

export const ehlo = (name: string): string => lineOf(`EHLO ${heloName(name)}`)
export const helo = (name: string): string => lineOf(`HELO ${heloName(name)}`)
export const startTls = 'STARTTLS\r\n'
export const reset = 'RSET\r\n'
export const quit = 'QUIT\r\n'

/** `sender` is empty for the null reverse-path. */
export const mail = (sender: string, { smtputf8 }: { smtputf8: boolean }): string =>
  lineOf(`MAIL FROM:<${sender}>${smtputf8 ? ' SMTPUTF8' : ''}`)

/** @throws AssertionError if the mailbox is not ASCII and SMTPUTF8 was not negotiated. */
export const rcpt = (mailbox: string, { smtputf8 }: { smtputf8: boolean }): string => {
  assert(smtputf8 || /^[ -~]*$/.test(mailbox), 'an address that is not ASCII needs SMTPUTF8')
  return lineOf(`RCPT TO:<${mailbox}>`)
}

/** Returns the reverse-path for MAIL; `<>` and an empty text are the null sender. @throws AssertionError */
export const senderOf = (mailFrom: string): string => {
  const bare = mailFrom.replace(/^<(.*)>$/, '$1')
  if (bare === '') return ''
  const at = bare.lastIndexOf('@')
  const mailbox = mailboxOf({ localPart: bare.slice(0, Math.max(at, 0)), asciiDomain: bare.slice(at + 1) })
  assert(/^[ -~]*$/.test(mailbox), 'the sender is not ASCII')
  return mailbox
}
