import { createPrivateKey, sign } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import {
  headOf,
  NoteFault,
  partsOf,
  signedNote,
  signerOf,
  verifierKey,
} from '../../../src/event-log/tree/signed-note.ts'

/**
 * Signed notes are tested with the key and note that C2SP's reference implementation publishes, and checkpoints with the example
 * in C2SP's specification.
 */

const named = 'PeterNeumann'
const publishedKey = 'PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW'
const publishedSecret = 'AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz'
const publishedText =
  "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
const publishedNote = `${publishedText}\n— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n`
const publicKey = Buffer.from(publishedKey.split('+').slice(2).join('+'), 'base64').subarray(1)
const privateKey = createPrivateKey({
  key: Buffer.concat([
    Buffer.from('302e020100300506032b657004220420', 'hex'),
    Buffer.from(publishedSecret, 'base64').subarray(1),
  ]),
  format: 'der',
  type: 'pkcs8',
})
const signer = { publicKey, sign: (text: string) => sign(null, Buffer.from(text), privateKey) }

describe('the published note', () => {
  test('its key is encoded in the same way, its text is found, and its signature is valid', () => {
    expect(verifierKey(named, publicKey)).toBe(publishedKey)
    expect(partsOf(publishedNote).text).toBe(publishedText)
    expect(signerOf(publishedNote, named, [signer])).toBe(signer)
  })

  test.each([
    ['another text', publishedNote.replace('answer', 'Answer')],
    ['another name', publishedNote.replace('— PeterNeumann', '— PeterNewmann')],
    ['another key id', publishedNote.replace('x08go/', 'x08gp/')],
    ['another signature', publishedNote.replace('nAM=', 'nAQ=')],
  ])('%s does not match the signature', (_, note) => {
    expect(signerOf(note, named, [signer])).toBeUndefined()
  })
})

describe('checkpoints', () => {
  const example =
    'example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n' +
    '— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n'

  test('the example from C2SP tlog-checkpoint is read', () => {
    expect(headOf(example)).toEqual({
      origin: 'example.com/behind-the-sofa',
      size: 20_852_163,
      root: Buffer.from('CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=', 'base64'),
    })
  })

  test('a signed checkpoint can be read again unchanged, and its key is found', () => {
    const head = { origin: 'enrichment-ledger/test', size: 7, root: Buffer.alloc(32, 7) }
    const note = signedNote(head, signer)
    expect(headOf(note)).toEqual(head)
    expect(signerOf(note, head.origin, [{ publicKey: Buffer.alloc(32) }, signer])).toBe(signer)
  })

  test.each([
    ['no signature', example.slice(0, example.indexOf('—'))],
    ['no empty line', example.replace('\n\n', '\n')],
    ['no last line break', example.slice(0, -1)],
    ['a size with a leading zero', example.replace('20852163', '020852163')],
    ['an invalid size', example.replace('20852163', '-1')],
    ['a short root', example.replace('CsUYapGG', 'CsUY')],
    ['a root in other letters', example.replace('jxq2I=', 'jxq2J=')],
    ['an origin with a plus sign', example.replace('example.com', 'example+com')],
    ['too long a note', example + 'x'.repeat(20_000)],
  ])('%s: refused', (_, note) => {
    expect(() => headOf(note)).toThrow(NoteFault)
  })
})
