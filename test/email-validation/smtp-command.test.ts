/** The client sends exactly the intended line. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  ehlo,
  mail,
  mailboxOf,
  rcpt,
  senderOf,
} from '../../src/capabilities/email-validation/mailbox/smtp/command.ts'

const ascii = { smtputf8: false }

describe('commands', () => {
  test('are one line', () => {
    expect(ehlo('probe.example.net')).toBe('EHLO probe.example.net\r\n')
    expect(ehlo('[192.0.2.1]')).toBe('EHLO [192.0.2.1]\r\n')
    expect(mail('', ascii)).toBe('MAIL FROM:<>\r\n')
    expect(mail('a@example.net', { smtputf8: true })).toBe('MAIL FROM:<a@example.net> SMTPUTF8\r\n')
    expect(rcpt('a@example.com', ascii)).toBe('RCPT TO:<a@example.com>\r\n')
  })

  test('never exceed the length of a line', () => {
    expect(() => rcpt(`${'a'.repeat(520)}@example.com`, ascii)).toThrow()
    expect(() => rcpt('jürgen@example.com', ascii)).toThrow()
    expect(rcpt('jürgen@example.com', { smtputf8: true })).toBe('RCPT TO:<jürgen@example.com>\r\n')
    for (const name of ['a b', 'a\r\nb', '', 'a>', '-a', 'a\u0000'])
      expect(() => ehlo(name), JSON.stringify(name)).toThrow()
  })

  test('never contain a line break, for any input', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' }), (localPart, asciiDomain) => {
        let line: string
        try {
          line = rcpt(mailboxOf({ localPart, asciiDomain }), { smtputf8: true })
        } catch {
          return
        }
        expect(line.slice(0, -2)).not.toMatch(/[\r\n\0]/)
        expect(line).toMatch(/^RCPT TO:<.+@.+>\r\n$/su)
      }),
    )
  })
})

test.each([
  ['a', 'example.com'],
  ['a.b+c', 'example.com'],
  ['"a b"', 'example.com'],
  ['"a>\\"b"', 'example.com'],
  ['名', 'xn--a.example'],
])('%s at %s is a mailbox', (localPart, asciiDomain) => {
  expect(mailboxOf({ localPart, asciiDomain })).toBe(`${localPart}@${asciiDomain}`)
})

test.each([
  ['', 'example.com'],
  ['a b', 'example.com'],
  ['a>', 'example.com'],
  ['.a', 'example.com'],
  ['a..b', 'example.com'],
  ['"a', 'example.com'],
  ['"a"b"', 'example.com'],
  ['"a\\', 'example.com'],
  ['"a\r\n"', 'example.com'],
  ['a\u2028b', 'example.com'],
  ['a', ''],
  ['a', '[127.0.0.1]'],
  ['a', 'bücher.example'],
  ['a', 'example.com> SIZE=1'],
])('%j at %j is not a mailbox', (localPart, asciiDomain) => {
  expect(() => mailboxOf({ localPart, asciiDomain })).toThrow()
})

test('the configured sender may be empty', () => {
  expect(senderOf('<>')).toBe('')
  expect(senderOf('')).toBe('')
  expect(senderOf('<probe@example.net>')).toBe('probe@example.net')
  expect(senderOf('probe@example.net')).toBe('probe@example.net')
  for (const bad of ['probe', '@example.net', 'a@b> X', 'a@b\r\n', 'ü@example.net'])
    expect(() => senderOf(bad), bad).toThrow()
})
