/**
 * Verifies a receipt of a call, offline, with Node.js 22.18 or later and nothing more:
 *
 *   node verify-receipt.ts receipt.json [verifier key]
 *
 * A receipt proves that the call's events are in the event log that a signed checkpoint covers. Pass the verifier key as it was
 * published when you began to trust the service. Without this key, the script checks only that the parts of the receipt agree.
 * Formats: RFC 6962 §2.1, c2sp.org/tlog-proof, c2sp.org/tlog-checkpoint.
 */
import { createHash, createPublicKey, verify } from 'node:crypto'
import { readFileSync } from 'node:fs'

/** Metadata and data are stored as exact texts, because the digest covers their bytes. */
type ReceiptEvent = { readonly revision: number } & {
  readonly [Text in
    | 'stream'
    | 'event_id'
    | 'type'
    | 'metadata'
    | 'data'
    | 'previous_digest'
    | 'proof']: string
}
export type Receipt = {
  readonly request_id: string
  readonly verifier_key: string
  readonly covered?: boolean
  readonly events: readonly ReceiptEvent[]
}

const sha256 = (...parts: (string | Buffer)[]): Buffer =>
  createHash('sha256')
    .update(Buffer.concat(parts.map((part) => Buffer.from(part as string))))
    .digest()
const base64 = (text: string): Buffer => Buffer.from(text, 'base64')
const assert = (holds: boolean, fault: string): void => {
  if (!holds) throw new Error(fault)
}

/**
 * The digest covers the previous event's digest, the stream and revision, the id, the type, the metadata except the digest
 * itself, and the data.
 */
const digestOf = (event: ReceiptEvent): string => {
  const { previous_digest, stream, revision, event_id, type, metadata, data } = event
  const at = metadata.lastIndexOf(',"digest":"')
  const lines = [previous_digest, stream, revision, event_id, type, metadata.slice(0, at), data]
  const digest = sha256(lines.join('\n')).toString('base64url')
  assert(metadata.slice(at) === `,"digest":"${digest}"}`, `event ${event_id} was changed`)
  return digest
}

/** The root of a tree with `size` leaves, computed from a leaf's hash and the sibling hashes on its path. */
const rootFrom = (leaf: Buffer, beside: readonly Buffer[], index: number, size: number): Buffer => {
  const top = beside.at(-1)
  if (size === 1 || top === undefined) {
    assert(size === 1 && top === undefined, 'the proof does not have the length of its way to the root')
    return leaf
  }
  const left = 2 ** ((size - 1).toString(2).length - 1)
  const below = beside.slice(0, -1)
  return index < left
    ? sha256(Buffer.of(1), rootFrom(leaf, below, index, left), top)
    : sha256(Buffer.of(1), top, rootFrom(leaf, below, index - left, size - left))
}

/** The content of a checkpoint. Throws if the key has not signed it. */
const checkpointOf = (note: string, verifierKey: string): { size: number; root: string } => {
  const [name = '', id = '', ...key] = verifierKey.split('+')
  const x = base64(key.join('+')).subarray(1).toString('base64url')
  const publicKey = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' })
  const end = note.lastIndexOf('\n\n') + 1
  const text = note.slice(0, end)
  const [origin, size = '', root = ''] = text.split('\n')
  const isSigned = note.split('\n').some((line) => {
    const signature = base64(line.split(' ')[2] ?? '')
    const isOfKey = line.startsWith(`— ${name} `) && signature.toString('hex', 0, 4) === id
    return isOfKey && verify(null, Buffer.from(text), publicKey, signature.subarray(4))
  })
  assert(origin === name && isSigned, `the checkpoint is not signed by the key ${name}+${id}`)
  return { size: Number(size), root }
}

/** Throws an Error that names the fault. `verifierKey` is the key that you trust. */
export const verifyReceipt = (receipt: Receipt, verifierKey = receipt.verifier_key): void => {
  const { covered } = receipt
  assert(covered !== false, 'no checkpoint covers the call yet: get the receipt again in a minute')
  let before: { event: ReceiptEvent; digest: string } | undefined
  for (const event of receipt.events) {
    const digest = digestOf(event)
    const { request_id, causation_id } = JSON.parse(event.metadata)
    assert(request_id === receipt.request_id, `event ${event.event_id} is of another call`)
    const follows =
      event.previous_digest === before?.digest &&
      event.stream === before.event.stream &&
      event.revision === before.event.revision + 1 &&
      causation_id === before.event.event_id
    assert(before ? follows : event.type === 'KeyUsed', `event ${event.event_id} does not follow its call`)
    const [head = '', ...note] = event.proof.split('\n\n')
    const [version, at = '', ...hashes] = head.split('\n').filter((line) => !line.startsWith('extra '))
    const index = Number(/^index (\d+)$/.exec(at)?.[1])
    const { size, root } = checkpointOf(note.join('\n\n'), verifierKey)
    assert(version === 'c2sp.org/tlog-proof@v1' && index < size, `event ${event.event_id} has no proof`)
    const leaf = sha256(Buffer.of(0), Buffer.from(digest, 'base64url'))
    const proved = rootFrom(leaf, hashes.map(base64), index, size).toString('base64') === root
    assert(proved, `the proof of event ${event.event_id} does not lead to the checkpoint`)
    before = { event, digest }
  }
  assert(before !== undefined, 'the receipt holds no event')
  const { type, data } = receipt.events.at(-1) ?? { type: '', data: '{}' }
  assert(type === 'CreditCharged' || 'free_by' in JSON.parse(data), 'it lacks the charge of its call')
}

const [, script, file, key] = process.argv
if (import.meta.filename === script)
  try {
    assert(file !== undefined, 'pass the file of a receipt')
    const answer = JSON.parse(readFileSync(file ?? '', 'utf8'))
    const receipt: Receipt = answer?.result ?? answer
    assert(Array.isArray(receipt?.events), `${file} is not a receipt`)
    verifyReceipt(receipt, key)
    for (const { type, data } of receipt.events) console.log(`${type} ${data}`)
    const by = key === undefined ? ' by the key in the receipt itself' : ''
    console.log(`proved${by}: call ${receipt.request_id}`)
  } catch (error) {
    console.error(`NOT PROVED: ${error instanceof Error ? error.message : String(error)}`)
    process.exitCode = 1
  }
