/** The rule for who can approve a price change, with the most decisive cases first. */
import { describe, expect, test } from 'vitest'
import { approvalRefusal, readOperators } from '../../src/administration/approval.ts'
import { labelledOperator, provedOperator, provedUserOf } from '../../src/administration/operator.ts'
import { noOperators } from '../../src/administration/users/operators.ts'
import { appendChained } from '../../src/event-log/append-chained.ts'
import { readIfAny } from '../../src/event-log/read-stream.ts'
import { encodeEvent, uuidV5 } from '../../src/event-log/stored-event.ts'
import type { DomainEvent } from '../../src/events/catalogue.ts'
import { operatorStream } from '../../src/events/streams.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

const ada = provedOperator('ada').actor
const bob = provedOperator('bob').actor
const cli = 'cli'
const labelledBob = labelledOperator('bob').actor

describe('with two people', () => {
  test.each([
    ['another proved person approves', ada, bob, null],
    [
      'a label never approves',
      ada,
      labelledBob,
      'only a verified user can approve, and "cli:bob" is an unverified name',
    ],
    [
      'a label that looks like a proof does not',
      ada,
      labelledOperator('user:bob').actor,
      'is an unverified name',
    ],
    ['the command line alone never approves', ada, cli, 'only a verified user can approve, and "cli" is'],
    ['the system never approves', ada, 'system', 'only a verified user can approve'],
    ['a key never approves', ada, 'key:l1WO9Eavc8p3Riys', 'only a verified user can approve'],
    ['a proposal made under a label cannot be approved', labelledBob, ada, 'it was proposed by "cli:bob"'],
    ['a proposal from the command line alone cannot be approved', cli, ada, 'it was proposed by "cli"'],
    ['the proposer does not approve', ada, ada, 'ada proposed it: another person must approve it'],
  ])('%s', (_, proposer, approver, refusal) => {
    const said = approvalRefusal({ proposer, approver, twoPerson: true, operators: noOperators })
    if (refusal === null) expect(said).toBeNull()
    else expect(said).toContain(refusal)
  })
})

describe('with two people, a user does not count if the proposer could act as that user', () => {
  const eventLog = createMemoryEventLog().client('test')
  let number = 0
  const record = async (event: DomainEvent, actor: string): Promise<void> => {
    const metadata = { id: uuidV5(`${++number}`), actor, effectiveAt: new Date(number).toISOString() }
    const [last] = await readIfAny(eventLog, operatorStream, { direction: 'backwards', max: 1 })
    await appendChained(eventLog, operatorStream, last?.revision ?? 'none', [encodeEvent(event, metadata)])
  }
  const user_created_at = '2026-01-01T00:00:00.000Z'
  const standing = { user: 'bob', role: 'finance', organization_id: null, user_created_at } as const
  const refusal = async (proposer = ada): Promise<string | null> =>
    approvalRefusal({
      proposer,
      approver: bob,
      twoPerson: true,
      operators: await readOperators(eventLog, true),
    })
  const token = (token_id: string) =>
    ({
      type: 'OperatorTokenIssued',
      data: { token_id, user: 'bob', secret_hmac: 'A'.repeat(43), user_created_at },
    }) as const

  test('a token that the proposer created counts until it is revoked; a password and an account count forever', async () => {
    await record({ type: 'UserCreated', data: standing }, cli)
    await record(token('l1WO9Eavc8p3Riys'), bob)
    await record({ type: 'UserPasswordChanged', data: { user: 'bob', user_created_at } }, bob)
    expect(await refusal()).toBeNull()
    await record(token('A0b1C2d3E4f5G6h7'), ada)
    expect(await refusal()).toContain('ada proposed it, and could act as bob')
    await record({ type: 'OperatorTokenRevoked', data: { token_id: 'A0b1C2d3E4f5G6h7', user: 'bob' } }, ada)
    expect(await refusal()).toBeNull()
    const carol = provedOperator('carol').actor
    await record({ type: 'UserPasswordChanged', data: { user: 'bob', user_created_at } }, carol)
    expect(await refusal()).toBeNull()
    expect(await refusal(carol)).toContain('carol proposed it, and could act as bob')
    // Whoever can act as bob can also change bob's password as bob.
    await record({ type: 'UserPasswordChanged', data: { user: 'bob', user_created_at } }, bob)
    expect(await refusal(carol)).toContain('carol proposed it')
  })

  test('the names of an earlier approval are checked, even if the proposer has set up access since', () => {
    expect(approvalRefusal({ proposer: ada, approver: bob, twoPerson: true, operators: null })).toBeNull()
    expect(approvalRefusal({ proposer: ada, approver: ada, twoPerson: true, operators: null })).not.toBeNull()
  })
})

describe('alone', () => {
  test.each([
    [ada, ada],
    [cli, cli],
    [labelledBob, cli],
    [ada, bob],
  ])('a proposal by %s is approved by %s', (proposer, approver) => {
    expect(approvalRefusal({ proposer, approver, twoPerson: false, operators: noOperators })).toBeNull()
  })
})

test('only a session or a token names a person', () => {
  expect([ada, cli, labelledBob, labelledOperator('user:ada').actor, 'system'].map(provedUserOf)).toEqual([
    'ada',
    null,
    null,
    null,
    null,
  ])
})
