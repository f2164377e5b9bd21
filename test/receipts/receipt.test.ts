/** Receipts for calls in a ledger are verified with the script that partners download. */
import { pino } from 'pino'
import { afterEach, describe, expect, test } from 'vitest'
import { parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { receiptOf } from '../../src/event-log/tree/receipt.ts'
import type { Instruction } from '../../src/ledger/command.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { type LogKind, openTreeScene, type TreeScene } from '../event-log/tree/tree-scene.ts'
import { lookUp, org, stream } from '../support/ledger-commands.ts'
import { verifyReceipt } from '../support/verify-receipt.ts'

const [charged, free] = ['01M7YKBQZN92PN3ABTVNQE6E12', '01M7YKBQZN92PN3ABTVNQE6E13']

let scene: TreeScene
afterEach(() => scene.close())

/** Records a charged call at revision 2, its charge at 3, and a free call at 4. */
const calls = async (): Promise<void> => {
  const ledger = createLedger({
    eventLog: scene.eventLog,
    snapshot: async () => null,
    logger: pino({ level: 'silent' }),
    clock: Date,
  })
  const submit = (key: string, instruction: Instruction) =>
    ledger.submit(org, { key, requestId: key, atMs: Date.now(), actor: 'system', ...instruction })
  await submit('register', { kind: 'register', name: 'Example', overdraftLimit: 0n })
  const grant = { kind: 'grant', priority: 1, expiresAt: null, reason: 'test' } as const
  await submit('grant', { ...grant, amount: parseCredits('100') })
  for (const [requestId, success] of [
    [charged, true],
    [free, false],
  ] as const)
    await submit(requestId, {
      kind: 'record',
      call: lookUp(success),
      book: priceBookOf(defaultPriceBook),
    })
}

describe.each<LogKind>(['memory', 'postgres', 'eventstoredb'])('over a log in %s', (kind) => {
  test('a call has a receipt from the next checkpoint on, and a stranger can verify it', async () => {
    scene = await openTreeScene(kind)
    await calls()
    const checkpoints = scene.checkpoints()
    const receipt = (requestId: string, revision: number) =>
      receiptOf({ eventLog: scene.eventLog, checkpoints }, { stream, revision, requestId })
    expect(await receipt(charged, 2)).toBeNull()
    await checkpoints.make()
    const [paid, unpaid] = [await receipt(charged, 2), await receipt(free, 4)]
    if (paid === null || unpaid === null) throw new Error('no receipt')
    expect(paid.events.map(({ type }) => type)).toEqual(['KeyUsed', 'CreditCharged'])
    expect(unpaid.events.map(({ type }) => type)).toEqual(['KeyUsed'])
    const [call] = await scene.eventLog.read(stream, { from: 2, max: 1 })
    const proof = call === undefined ? null : await checkpoints.proofOfInclusion(call.position)
    if (proof === null) throw new Error('no proof')
    for (const one of [paid, unpaid]) verifyReceipt(JSON.parse(JSON.stringify(one)), proof.verifierKey)
    expect(() => verifyReceipt({ ...paid, request_id: free })).toThrow('is of another call')
    expect(() => verifyReceipt({ ...paid, events: [...unpaid.events, ...paid.events] })).toThrow()
  })
})
