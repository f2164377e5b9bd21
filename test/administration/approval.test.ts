/** The rule for who can approve a price change, with the most decisive cases first. */
import { describe, expect, test } from 'vitest'
import { approvalRefusal } from '../../src/administration/approval.ts'
import { labelledOperator, provedOperator, provedUserOf } from '../../src/administration/operator.ts'

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
    const said = approvalRefusal({ proposer, approver, twoPerson: true })
    if (refusal === null) expect(said).toBeNull()
    else expect(said).toContain(refusal)
  })
})

describe('alone', () => {
  test.each([
    [ada, ada],
    [cli, cli],
    [labelledBob, cli],
    [ada, bob],
  ])('a proposal by %s is approved by %s', (proposer, approver) => {
    expect(approvalRefusal({ proposer, approver, twoPerson: false })).toBeNull()
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
