import { createPublicKey, hash, verify } from 'node:crypto'
import { hashBytes } from './merkle-tree.ts'

/**
 * Checkpoints in the format of C2SP tlog-checkpoint: a signed note of three lines (origin, size and root), and a line for each signature.
 * Signatures are Ed25519 over the text, by a key whose name is the origin.
 */

/** `origin` is the globally unique name of the tree. */
type TreeHead = { readonly origin: string; readonly size: number; readonly root: Buffer }

/** The text is not a checkpoint, or was not signed by the expected key. `message` contains the reason. */
export class NoteFault extends Error {
  override name = 'NoteFault'
}

const noteBytesMax = 10_000
const signaturesMax = 16
const keyIdBytes = 4
const signatureBytes = 64
const publicKeyBytes = 32
const ed25519 = Buffer.of(1)

/** The name of a key contains no white space and no plus sign. */
const originPattern = /^[^\s+]{1,200}$/u
const sizePattern = /^(0|[1-9]\d{0,15})$/

const textOf = ({ origin, size, root }: TreeHead): string => {
  if (!originPattern.test(origin)) throw new NoteFault(`"${origin}" is not a valid origin of a checkpoint`)
  return `${origin}\n${size}\n${root.toString('base64')}\n`
}

/** The bytes at the start of a signature, which identify the key. */
const keyHash = (name: string, publicKey: Buffer): Buffer =>
  Buffer.from(
    hash('sha256', Buffer.concat([Buffer.from(`${name}\n`), ed25519, publicKey]), 'hex'),
    'hex',
  ).subarray(0, keyIdBytes)

/** The public key in the format that verifiers expect: `<name>+<id>+<key>`. */
export const verifierKey = (name: string, publicKey: Buffer): string =>
  `${name}+${keyHash(name, publicKey).toString('hex')}+${Buffer.concat([ed25519, publicKey]).toString('base64')}`

type Signer = { readonly publicKey: Buffer; sign(text: string): Buffer }

export const signedNote = (head: TreeHead, signer: Signer): string => {
  const text = textOf(head)
  const id = keyHash(head.origin, signer.publicKey)
  return `${text}\n— ${head.origin} ${Buffer.concat([id, signer.sign(text)]).toString('base64')}\n`
}

type Signature = { readonly name: string; readonly keyHash: Buffer; readonly signature: Buffer }

/** Splits a note into its signed text and its signatures. Throws `NoteFault`. */
export const partsOf = (note: string): { text: string; signatures: Signature[] } => {
  if (Buffer.byteLength(note) > noteBytesMax)
    throw new NoteFault(`a note can have at most ${noteBytesMax} bytes`)
  const blank = note.lastIndexOf('\n\n')
  if (blank === -1 || !note.endsWith('\n'))
    throw new NoteFault('a signed note must consist of its text, an empty line, and lines of signatures')
  const lines = note.slice(blank + 2, -1).split('\n')
  if (lines.length > signaturesMax) throw new NoteFault(`a note can have at most ${signaturesMax} signatures`)
  return { text: note.slice(0, blank + 1), signatures: lines.map(signatureOf) }
}

const signatureOf = (line: string): Signature => {
  const [, name = '', encoded = ''] = /^— ([^\s+]+) ([A-Za-z0-9+/]+={0,2})$/u.exec(line) ?? []
  const bytes = Buffer.from(encoded, 'base64')
  if (name === '' || bytes.length <= keyIdBytes || bytes.toString('base64') !== encoded)
    throw new NoteFault('a line of the note is not a signature')
  return { name, keyHash: bytes.subarray(0, keyIdBytes), signature: bytes.subarray(keyIdBytes) }
}

/** Returns the content of a checkpoint, without checking signatures. Throws `NoteFault`. */
export const headOf = (note: string): TreeHead => {
  const [origin = '', size = '', encoded = '', ...rest] = partsOf(note).text.split('\n')
  const root = Buffer.from(encoded, 'base64')
  if (!originPattern.test(origin) || !sizePattern.test(size) || rest.length === 0)
    throw new NoteFault('the lines of a checkpoint must be its origin, its size and its root')
  if (root.length !== hashBytes || root.toString('base64') !== encoded)
    throw new NoteFault('the root of the checkpoint is not 32 bytes in base64')
  if (!Number.isSafeInteger(Number(size))) throw new NoteFault(`no tree has ${size} leaves`)
  return { origin, size: Number(size), root }
}

/** Returns the key that signed the note under `name`, or undefined. Throws `NoteFault` if the text is not a note. */
export const signerOf = <Key extends { readonly publicKey: Buffer }>(
  note: string,
  name: string,
  keys: readonly Key[],
): Key | undefined => {
  const { text, signatures } = partsOf(note)
  return keys.find(({ publicKey }) => {
    const id = keyHash(name, publicKey)
    return signatures.some(
      (one) => one.name === name && one.keyHash.equals(id) && isSignature(text, one.signature, publicKey),
    )
  })
}

/** Whether the signature of the text is valid for this key. */
export const isSignature = (text: string, signature: Buffer, publicKey: Buffer): boolean => {
  if (signature.length !== signatureBytes || publicKey.length !== publicKeyBytes) return false
  const key = createPublicKey({
    key: { kty: 'OKP', crv: 'Ed25519', x: publicKey.toString('base64url') },
    format: 'jwk',
  })
  return verify(null, Buffer.from(text), key, signature)
}
