/**
 * Parses SMTP replies from a byte stream that can be split anywhere (RFC 5321 §4.2). The server is untrusted: text that is too long or not a
 * reply is a protocol error and ends the session.
 */

export type SmtpReply = {
  readonly code: number
  /** As in RFC 3463, such as `5.1.1`; null if the reply has no enhanced code, or one of a different class than its code. */
  readonly enhancedCode: string | null
  /** The text of each line without the code, one character per octet. Servers echo addresses in this text, so never log or store it. */
  readonly lines: readonly string[]
}

export class SmtpProtocolError extends Error {
  override readonly name = 'SmtpProtocolError'
}

/** RFC 5321 §4.5.3.1.5 allows 512. Servers that put a link and help text on one line slightly exceed this. */
const lineOctetsMax = 1_024
const linesMax = 100
const replyOctetsMax = 64 * 1_024

const lineFeed = 10
const carriageReturn = 13
const noOctets = Buffer.alloc(0)

export type ReplyParser = {
  /**
   * Returns the replies completed by these octets, in order.
   * @throws SmtpProtocolError if the octets are not a reply or exceed a bound; the parser cannot be used afterwards.
   */
  push(octets: Buffer): SmtpReply[]
  unfinished(): boolean
}

export const createReplyParser = (): ReplyParser => {
  let rest: Buffer = noOctets
  let code = ''
  let lines: string[] = []
  let replyOctets = 0

  const take = (line: Buffer): SmtpReply | null => {
    const text = line.toString('latin1')
    const [, digits, mark] = /^([2-5][0-9]{2})(?:([ -])|$)/.exec(text) ?? []
    if (digits === undefined) throw new SmtpProtocolError('a line is not an SMTP reply')
    if (code !== '' && digits !== code) throw new SmtpProtocolError('a reply changes its code between lines')
    replyOctets += line.length
    lines.push(text.slice(4))
    if (lines.length > linesMax) throw new SmtpProtocolError('a reply has too many lines')
    if (replyOctets > replyOctetsMax) throw new SmtpProtocolError('a reply is too long')
    code = digits
    if (mark === '-') return null
    const reply = { code: Number(digits), enhancedCode: enhancedCodeOf(digits, lines), lines }
    code = ''
    lines = []
    replyOctets = 0
    return reply
  }

  return {
    push: (octets) => {
      const replies: SmtpReply[] = []
      let from = 0
      while (from < octets.length) {
        const end = octets.indexOf(lineFeed, from)
        const part = octets.subarray(from, end < 0 ? octets.length : end)
        if (rest.length + part.length > lineOctetsMax) throw new SmtpProtocolError('a line is too long')
        const line = rest.length === 0 ? part : Buffer.concat([rest, part])
        if (end < 0) {
          // The octets are copied, because they belong to a larger block that would otherwise stay in memory.
          rest = Buffer.from(line)
          break
        }
        rest = noOctets
        from = end + 1
        // A bare line feed also ends a line, because some servers send it. This is safe, because we forward nothing.
        const reply = take(line.at(-1) === carriageReturn ? line.subarray(0, -1) : line)
        if (reply !== null) replies.push(reply)
      }
      return replies
    },
    unfinished: () => rest.length > 0 || lines.length > 0,
  }
}

/** Finds the enhanced code at the start of a line (RFC 2034), which may follow a number sign, or in qmail's form `(#5.1.1)`. */
const enhancedCodeOf = (code: string, lines: readonly string[]): string | null => {
  for (const line of lines) {
    const found =
      /^ ?#?([245]\.[0-9]{1,3}\.[0-9]{1,3})(?![0-9.])/.exec(line)?.[1] ??
      /\(#([245]\.[0-9]{1,3}\.[0-9]{1,3})\)/.exec(line)?.[1]
    // The classes must be equal (RFC 2034 §4). Otherwise, only the reply code counts.
    if (found?.[0] === code[0]) return found ?? null
  }
  return null
}
