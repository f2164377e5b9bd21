/** A reply is recognized however its octets are split into packets. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  createReplyParser,
  SmtpProtocolError,
  type SmtpReply,
} from '../../src/capabilities/email-validation/mailbox/smtp/reply.ts'

const parse = (...chunks: string[]): SmtpReply[] => {
  const parser = createReplyParser()
  return chunks.flatMap((chunk) => parser.push(Buffer.from(chunk, 'latin1')))
}

describe('a reply', () => {
  test('has a code, an enhanced code and a text', () => {
    expect(parse('250 2.1.5 ok\r\n')).toEqual([{ code: 250, enhancedCode: '2.1.5', lines: ['2.1.5 ok'] }])
  })
  test('may have several lines', () => {
    expect(parse('250-mx.test\r\n250-PIPELINING\r\n250 SIZE\r\n')).toEqual([
      { code: 250, enhancedCode: null, lines: ['mx.test', 'PIPELINING', 'SIZE'] },
    ])
  })
  test('may be a code alone, and may end with a bare line feed', () => {
    expect(parse('250\r\n', '221 bye\n').map(({ code }) => code)).toEqual([250, 221])
  })

  test.each([
    ['550 5.1.10 gone', '5.1.10'],
    ['550 #5.1.0 Address rejected.', '5.1.0'],
    ['553 sorry, no mailbox here by that name. (#5.1.1)', '5.1.1'],
    ['550 4.2.0 the classes differ', null],
    ['550 5.1.1.1 an address', null],
    ['550 version 5.1.1', null],
    ['550-Sorry\r\n550 5.1.1 unknown', '5.1.1'],
    ['354 3.0.0 no such class', null],
  ])('%s has the enhanced code %s', (text, expected) => {
    expect(parse(`${text}\r\n`)[0]?.enhancedCode).toBe(expected)
  })

  test('is the same however it is split', () => {
    const text = fc.string({ maxLength: 60 }).map((value) => value.replaceAll(/[\r\n]/g, ' '))
    const reply = fc
      .tuple(fc.integer({ min: 200, max: 599 }), fc.array(text, { minLength: 1, maxLength: 5 }))
      .map(([code, lines]) =>
        lines.map((line, i) => `${code}${i === lines.length - 1 ? ' ' : '-'}${line}\r\n`).join(''),
      )
    fc.assert(
      fc.property(
        fc.array(reply, { maxLength: 4 }),
        fc.array(fc.nat(), { maxLength: 20 }),
        (replies, cuts) => {
          const octets = Buffer.from(replies.join(''))
          const at = [0, ...cuts.map((cut) => cut % (octets.length + 1)).sort((a, b) => a - b), octets.length]
          const parser = createReplyParser()
          const found = at.flatMap((from, i) =>
            parser.push(octets.subarray(from, at[i + 1] ?? octets.length)),
          )
          expect(found).toEqual(createReplyParser().push(octets))
          expect(found).toHaveLength(replies.length)
          expect(parser.unfinished()).toBe(false)
        },
      ),
    )
  })
})

describe('not a reply', () => {
  test.each([
    ['an empty line', '\r\n'],
    ['words', 'hello\r\n'],
    ['two digits', '25 ok\r\n'],
    ['four digits', '2500 ok\r\n'],
    ['an unknown class', '650 ok\r\n'],
    ['a preliminary reply', '120 soon\r\n'],
    ['another code in the next line', '250-a\r\n251 b\r\n'],
    ['a line of more than 1,024 octets', `250 ${'x'.repeat(1_024)}\r\n`],
    ['more than 100 lines', '250-x\r\n'.repeat(101)],
    ['more than 64 KiB', `250-${'x'.repeat(1_000)}\r\n`.repeat(66)],
  ])('%s', (_, text) => {
    expect(() => parse(text)).toThrow(SmtpProtocolError)
    expect(() => parse(...(text.match(/.{1,7}/gs) ?? []))).toThrow(SmtpProtocolError)
  })

  test('the longest allowed reply is accepted', () => {
    expect(parse(`250 ${'x'.repeat(1_019)}\r\n`)).toHaveLength(1)
    expect(parse(`${'250-x\r\n'.repeat(99)}250 x\r\n`)[0]?.lines).toHaveLength(100)
  })

  test('arbitrary octets give replies or this error', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (octets) => {
        try {
          for (const { code } of createReplyParser().push(Buffer.from(octets)))
            expect(code).toBeGreaterThanOrEqual(200)
        } catch (error) {
          expect(error).toBeInstanceOf(SmtpProtocolError)
        }
      }),
    )
  })
})
