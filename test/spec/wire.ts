/** Checks that apply to every answer: the error object, and the headers of a call. */
import { expect } from 'vitest'
import type { Capability } from '../../src/events/capabilities.ts'
import type { Answer, LedgerFact, Partner } from '../support/house.ts'

export const ulid = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/

export const jsonType = 'application/json; charset=utf-8'

/** Texts that reveal internals: file names, stack frames and library messages. */
const inside = /node_modules|\.(ts|js|mjs|cjs):\d+|\bat [\w.<>]+ \(|Error:|FST_|HPE_|stack|postgres|select /i

export type ExpectedRefusal = {
  readonly status: number
  readonly error: string
  readonly code: string
  readonly details: Readonly<Record<string, unknown>>
}

/** Expects the error object of Specification 2.1: exactly its members, the header's request id, and no internals. */
export const expectErrorObject = (
  answer: Answer,
  { status, error, code, details }: ExpectedRefusal,
): void => {
  expect({ status: answer.status, body: answer.body }).toEqual({
    status,
    body: {
      error,
      message: expect.stringMatching(/^\S.+\.$/),
      code,
      request_id: expect.stringMatching(ulid),
      details,
    },
  })
  expect(answer.headers.get('content-type')).toBe(jsonType)
  expect(answer.headers.get('x-request-id')).toBe(answer.body.request_id)
  expect(answer.text).not.toMatch(inside)
}

/** Expects the authentication error, without request id, details or anything about an organization. */
export const expectNotAuthenticated = (answer: Answer): void => {
  expect({ status: answer.status, body: answer.body }).toEqual({
    status: 401,
    body: {
      error: 'unauthorized',
      message: expect.stringMatching(/invalid or missing API key/i),
      code: 'AUTH_001',
    },
  })
  expect(answer.headers.get('content-type')).toBe(jsonType)
  expect(answer.headers.get('x-request-id')).toMatch(ulid)
  expect(answer.headers.get('www-authenticate')).toBe('Key')
  expectNoCallHeaders(answer)
}

export const expectNoCallHeaders = ({ headers }: Answer): void => {
  for (const name of ['credits-charged', 'credits-remaining', 'ratelimit', 'ratelimit-policy', 'set-cookie'])
    expect({ [name]: headers.get(name) }).toEqual({ [name]: null })
}

export const expectCredits = ({ headers }: Answer, charged: string, remaining: string): void => {
  expect({
    charged: headers.get('credits-charged'),
    remaining: headers.get('credits-remaining'),
  }).toEqual({ charged, remaining })
}

export type Bare = { readonly type: string; readonly data: Readonly<Record<string, unknown>> }

export const bare = (events: readonly LedgerFact[]): Bare[] =>
  events.map(({ type, data }) => ({ type, data }))

/** The ledger event of a refusal, which a named rule makes free. */
export const refusalFact = (
  { keyId }: Partner,
  code: string,
  capability: Capability = 'ip_lookup',
): Bare => ({
  type: 'KeyUsed',
  data: {
    key_id: keyId,
    capability,
    outcome: 'refused',
    code,
    facts: { kind: 'refusal', code },
    free_by: { rule: 'refusal', rule_version: 1 },
  },
})

/** Expects the refusal of a call with a known key: the error object, the headers of a free call, and one free fact. */
export const expectRefusedCall = (
  answer: Answer & { readonly events: readonly LedgerFact[] },
  partner: Partner,
  refusal: ExpectedRefusal,
  capability: Capability = 'ip_lookup',
): void => {
  expectErrorObject(answer, refusal)
  expect(bare(answer.events)).toEqual([refusalFact(partner, refusal.code, capability)])
  expect(answer.events[0]?.metadata).toMatchObject({
    request_id: answer.body.request_id,
    actor: `key:${partner.keyId}`,
  })
  expect(answer.headers.get('credits-charged')).toBe('0')
  expect(answer.headers.get('credits-remaining')).toMatch(/^-?\d+(\.\d{1,6})?$/)
  rateLimitsOf(answer)
}

export type Policy = { readonly limit: number; readonly windowSeconds: number }
export type State = { readonly remaining: number; readonly resetSeconds: number }

/** A structured-field integer: no sign, no leading zero, at most 15 digits. */
const integer = '(0|[1-9][0-9]{0,14})'

const listOf = (value: string | null, member: RegExp): [string, number, number][] => {
  if (value === null) throw new Error('the header is missing')
  return value.split(', ').map((text): [string, number, number] => {
    const match = member.exec(text)
    if (match === null)
      throw new Error(`${JSON.stringify(text)} in ${JSON.stringify(value)} is no list member`)
    return [match[1] ?? '', Number(match[2]), Number(match[3])]
  })
}

/** Parses RateLimit-Policy and RateLimit as strictly as the draft and RFC 9651 (structured fields) define them. */
export const rateLimitsOf = ({ headers }: Answer): Record<string, Policy & State> => {
  const policies = listOf(
    headers.get('ratelimit-policy'),
    new RegExp(`^"([a-z]+)";q=${integer};w=${integer}$`),
  )
  const states = listOf(headers.get('ratelimit'), new RegExp(`^"([a-z]+)";r=${integer};t=${integer}$`))
  expect(states.map(([name]) => name)).toEqual(policies.map(([name]) => name))
  return Object.fromEntries(
    policies.map(([name, limit, windowSeconds], i) => {
      const [, remaining = Number.NaN, resetSeconds = Number.NaN] = states[i] ?? []
      expect(remaining).toBeLessThanOrEqual(limit)
      expect(resetSeconds).toBeGreaterThanOrEqual(1)
      expect(resetSeconds).toBeLessThanOrEqual(windowSeconds)
      return [name, { limit, windowSeconds, remaining, resetSeconds }]
    }),
  )
}
