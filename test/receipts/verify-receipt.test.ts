/**
 * Tests the script that partners download. The trees, proofs and checkpoints are made by the definitions in RFC 6962 and C2SP,
 * without the service's own code.
 */
import { createHash, generateKeyPairSync, sign } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { randomCases } from '../support/exhaustive.ts'
import { type Receipt, verifyReceipt } from '../support/verify-receipt.ts'

const sha256 = (...parts: Buffer[]): Buffer => createHash('sha256').update(Buffer.concat(parts)).digest()
const splitOf = (size: number): number => {
  let left = 1
  while (left * 2 < size) left *= 2
  return left
}
/** MTH and PATH of RFC 6962 §2.1 and §2.1.1. */
const rootOf = (leaves: readonly Buffer[]): Buffer => {
  if (leaves.length === 1) return sha256(Buffer.of(0), leaves[0] ?? Buffer.of())
  const left = splitOf(leaves.length)
  return sha256(Buffer.of(1), rootOf(leaves.slice(0, left)), rootOf(leaves.slice(left)))
}
const pathOf = (index: number, leaves: readonly Buffer[]): Buffer[] => {
  if (leaves.length === 1) return []
  const left = splitOf(leaves.length)
  return index < left
    ? [...pathOf(index, leaves.slice(0, left)), rootOf(leaves.slice(left))]
    : [...pathOf(index - left, leaves.slice(left)), rootOf(leaves.slice(0, left))]
}

const keyOf = (origin: string) => {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const { x = '' } = publicKey.export({ format: 'jwk' })
  const raw = Buffer.concat([Buffer.of(1), Buffer.from(x, 'base64url')])
  const id = sha256(Buffer.from(`${origin}\n`), raw).subarray(0, 4)
  return {
    verifierKey: `${origin}+${id.toString('hex')}+${raw.toString('base64')}`,
    noteOf: (text: string) => {
      const signature = Buffer.concat([id, sign(null, Buffer.from(text), privateKey)])
      return `${text}\n— ${origin} ${signature.toString('base64')}\n`
    },
  }
}

const origin = 'ledger.example.com/log'
const key = keyOf(origin)
const stream = 'ledger-org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
const requestId = '01M7YKBQZN92PN3ABTVNQE6E12'

const eventOf = (n: number, previous: string, causation: string | undefined, data: string) => {
  const event_id = `00000000-0000-5000-8000-00000000000${n}`
  const cause = causation === undefined ? '' : `,"causation_id":"${causation}"`
  const open = `{"schema_version":1,"request_id":"${requestId}"${cause},"actor":"key:K9abcdefghijklmn"`
  const [revision, type] = [40 + n, n === 1 ? 'KeyUsed' : 'CreditCharged']
  const digest = createHash('sha256')
    .update(`${previous}\n${stream}\n${revision}\n${event_id}\n${type}\n${open}\n${data}`)
    .digest('base64url')
  const metadata = `${open},"digest":"${digest}"}`
  return { event: { stream, revision, event_id, type, metadata, data, previous_digest: previous }, digest }
}

/** A receipt for two events, which are leaves `index` and `index + 1` of a tree. */
const receiptOf = (size: number, index: number, by = key): Receipt => {
  const used = eventOf(
    1,
    sha256(Buffer.from('before')).toString('base64url'),
    undefined,
    '{"outcome":"answered"}',
  )
  const charged = eventOf(2, used.digest, used.event.event_id, '{"amount":"1"}')
  const leaves = Array.from({ length: size }, (_, n) => sha256(Buffer.from(`leaf ${n}`)))
  for (const [n, { digest }] of [used, charged].entries())
    leaves[index + n] = Buffer.from(digest, 'base64url')
  const note = by.noteOf(`${origin}\n${size}\n${rootOf(leaves).toString('base64')}\n`)
  const proofOf = (at: number): string =>
    [
      'c2sp.org/tlog-proof@v1',
      `index ${at}`,
      ...pathOf(at, leaves).map((hash) => hash.toString('base64')),
      '',
      note,
    ].join('\n')
  return {
    request_id: requestId,
    verifier_key: by.verifierKey,
    events: [
      { ...used.event, proof: proofOf(index) },
      { ...charged.event, proof: proofOf(index + 1) },
    ],
  }
}

test('a receipt is valid for any place in a tree of any size', () => {
  fc.assert(
    fc.property(fc.integer({ min: 2, max: 70 }), fc.nat(), (size, at) => {
      verifyReceipt(receiptOf(size, at % (size - 1)), key.verifierKey)
    }),
    { numRuns: randomCases(150) },
  )
})

describe('a receipt is invalid', () => {
  const receipt = receiptOf(37, 11)
  const [used, charged] = receipt.events
  if (used === undefined || charged === undefined) throw new Error('two events')

  test('with any one character of any text changed', () => {
    const texts = ['stream', 'event_id', 'type', 'metadata', 'data', 'previous_digest', 'proof'] as const
    fc.assert(
      fc.property(fc.nat(1), fc.constantFrom(...texts), fc.nat(), (n, name, place) => {
        const text = receipt.events[n]?.[name] ?? ''
        const at = place % text.length
        const other = text[at] === 'x' ? 'y' : 'x'
        const changed = `${text.slice(0, at)}${other}${text.slice(at + 1)}`
        // Two kinds of change have no effect: one to the last bits of a base64 text, which may be unused, and one to another signer's line,
        // which is ignored.
        if (name === 'proof' && Buffer.from(changed, 'base64').equals(Buffer.from(text, 'base64'))) return
        const events = receipt.events.map((event, i) => (i === n ? { ...event, [name]: changed } : event))
        expect(() => verifyReceipt({ ...receipt, events }, key.verifierKey)).toThrow()
      }),
      { numRuns: randomCases(400) },
    )
  })

  test.each<[string, Receipt, string, string]>([
    ['under the key of another service', receipt, keyOf(origin).verifierKey, 'is not signed by the key'],
    [
      'about another call',
      { ...receipt, request_id: `${requestId}X` },
      key.verifierKey,
      'is of another call',
    ],
    [
      'with its charge before its call',
      { ...receipt, events: [charged, used] },
      key.verifierKey,
      'does not follow its call',
    ],
    [
      'without its charge, as if the call had cost nothing',
      { ...receipt, events: [used] },
      key.verifierKey,
      'lacks the charge',
    ],
    [
      'without its call',
      { ...receipt, events: [charged] },
      key.verifierKey,
      `event ${charged.event_id} does not follow its call`,
    ],
    ['without events', { ...receipt, events: [] }, key.verifierKey, 'holds no event'],
    [
      'that no checkpoint covers yet',
      JSON.parse(`{"request_id": "${requestId}", "covered": false}`),
      key.verifierKey,
      'no checkpoint covers the call yet: get the receipt again in a minute',
    ],
    [
      'against a checkpoint that is older than the call',
      {
        ...receipt,
        events: [{ ...used, proof: receiptOf(11, 2).events[0]?.proof.replace('index 2', 'index 11') ?? '' }],
      },
      key.verifierKey,
      'has no proof',
    ],
  ])('%s', (_, given, by, fault) => {
    expect(() => verifyReceipt(given, by)).toThrow(fault)
  })
})
