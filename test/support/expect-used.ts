import { expect } from 'vitest'
import { z } from 'zod'
import { cli } from './service.ts'
import { type Call, get, type Hosts, make, post, type Use, type Variables } from './used-installation.ts'

/** Expectations for a used installation (`used-installation.ts`), even after it was moved or upgraded. */

/** Every verification command succeeds. */
export const expectProved = async (variables: Variables): Promise<void> => {
  for (const args of [
    ['event-log', 'verify'],
    ['ledger', 'verify'],
    ['projection', 'verify', '--all'],
    ['ledger', 'reconcile'],
  ]) {
    const { code, out, err } = await cli(args, variables)
    expect({ args, code, told: code === 0 ? '' : `${err}${out}` }).toEqual({ args, code: 0, told: '' })
  }
}

const hourMs = 3_600_000
const dayMs = 24 * hourMs

/**
 * Keys, repeated calls, the user and the token still work as before, and the erased person is still erased. Data that expires is
 * checked only before its expiry: answers are kept for 24 hours, and a rotated key works for 89 days.
 */
export const expectUsable = async (hosts: Hosts, variables: Variables, use: Use): Promise<void> => {
  const ageMs = Date.now() - Date.parse(use.endedAt)
  for (const call of use.calls.filter(({ idempotencyKey }) => idempotencyKey !== null)) {
    const again = await make(hosts, use.apiKey, call)
    expect([call.path, again.headers.get('credits-charged')]).toEqual([call.path, '0'])
    if (ageMs > 23 * hourMs) continue
    expect([call.path, again.status]).toEqual([call.path, call.status])
    expect(found(again.answer)).toEqual(found(call.answer))
  }
  const hits = use.calls.filter(({ path }) => path === '/pixel/decide')
  if (ageMs < 23 * hourMs)
    for (const hit of hits)
      expect(found((await make(hosts, use.apiKey, hit)).answer)).toEqual(found(hit.answer))
  const statusOf = async (key: string, call: Call): Promise<number> => (await make(hosts, key, call)).status
  if (ageMs < 88 * dayMs) expect(await statusOf(use.rotatedKey, get('/whoami', 'dashboard'))).toBe(200)
  expect(await statusOf(use.revokedKey, get('/whoami', 'dashboard'))).toBe(401)
  const gone = await make(hosts, use.apiKey, post('/v1/profnet/profile', { id: use.erasedPerson }))
  expect(JSON.stringify(gone.answer)).not.toContain('Quillfeather')
  // The command line acts as the token's owner. A command with an unknown token would be refused.
  const asAda = await cli(['credits', 'grant', use.otherId, '1', '--dry-run'], {
    ...variables,
    OPERATOR_TOKEN: use.operatorToken,
  })
  expect([asAda.code, asAda.err]).toEqual([0, ''])
}

/** The answer without the parts that differ per request: the request id, the time and the cache status. */
const found = (answer: unknown): unknown =>
  z.looseObject({ result: z.unknown() }).safeParse(answer).data?.result ??
  z
    .looseObject({ request_id: z.unknown() })
    .transform(({ request_id, ...rest }) => rest)
    .parse(answer)
