/** An organization's rules: the event to which a command leads after given events, and the rules that cover a host. */
import { describe, expect, test } from 'vitest'
import {
  applyPixelEvent,
  changeOf,
  emptyRules,
  type LiveRules,
  matchRules,
  type PixelEvent,
  placeOf,
  type RuleCommand,
  rulesInOrder,
  rulesMax,
  windowsOf,
} from '../../src/capabilities/pixel/rules-state.ts'
import type { PixelPeriod } from '../../src/events/pixel.ts'

const organization_id = 'org_00000000000000000000000001'
const limitSet = (domain: string, period: PixelPeriod, number: number): PixelEvent => ({
  type: 'PixelLimitSet',
  data: { organization_id, domain, period, number },
})
const limitRemoved = (domain: string, period: PixelPeriod): PixelEvent => ({
  type: 'PixelLimitRemoved',
  data: { organization_id, domain, period },
})
const blocked = (domain: string): PixelEvent => ({ type: 'PixelBlocked', data: { organization_id, domain } })
const unblocked = (domain: string): PixelEvent => ({
  type: 'PixelUnblocked',
  data: { organization_id, domain },
})

const actor = 'cli'

const given = (...events: PixelEvent[]): LiveRules => {
  const rules = emptyRules()
  for (const [revision, event] of events.entries())
    applyPixelEvent(rules, event, { revision, actor, at: `2026-09-14T00:00:0${revision % 10}.000Z` })
  return rules
}

const set = (domain: string, period: PixelPeriod, number: number): RuleCommand => ({
  kind: 'limit',
  domain,
  period,
  number,
})

describe('a command', () => {
  test.each<[string, LiveRules, RuleCommand, PixelEvent | null]>([
    ['a first limit', given(), set('example.com', 'day', 5), limitSet('example.com', 'day', 5)],
    ['the same limit again', given(limitSet('example.com', 'day', 5)), set('example.com', 'day', 5), null],
    [
      'another number',
      given(limitSet('example.com', 'day', 5)),
      set('example.com', 'day', 6),
      limitSet('example.com', 'day', 6),
    ],
    [
      'a limit for the other period',
      given(limitSet('example.com', 'day', 5)),
      set('example.com', 'month', 5),
      limitSet('example.com', 'month', 5),
    ],
    [
      'a limit that was removed before',
      given(limitSet('example.com', 'day', 5), limitRemoved('example.com', 'day')),
      set('example.com', 'day', 5),
      limitSet('example.com', 'day', 5),
    ],
    [
      'the removal of a limit',
      given(limitSet('example.com', 'day', 5)),
      { kind: 'unlimit', domain: 'example.com', period: 'day' },
      limitRemoved('example.com', 'day'),
    ],
    [
      'the removal of a limit if only the other period has one',
      given(limitSet('example.com', 'day', 5)),
      { kind: 'unlimit', domain: 'example.com', period: 'month' },
      null,
    ],
    ['a block', given(), { kind: 'block', domain: 'example.com' }, blocked('example.com')],
    ['a repeated block', given(blocked('example.com')), { kind: 'block', domain: 'example.com' }, null],
    ['the removal of a block that does not exist', given(), { kind: 'unblock', domain: 'example.com' }, null],
    [
      'the removal of a block',
      given(blocked('example.com')),
      { kind: 'unblock', domain: 'example.com' },
      unblocked('example.com'),
    ],
  ])('for %s needs the event that makes the change, or no event', (_, rules, command, event) => {
    expect(changeOf(rules, organization_id, command)).toEqual(event)
  })

  test('above the maximum number of rules is refused; changing or removing an existing rule is not', () => {
    const rules = given(
      ...Array.from({ length: rulesMax - 1 }, (_, n) => limitSet(`d${n}.example.com`, 'day', 1)),
      blocked('example.org'),
    )
    expect(rules.rules.size).toBe(rulesMax)
    const judge = (command: RuleCommand) => changeOf(rules, organization_id, command)
    expect(judge(set('new.example.com', 'day', 1))).toBe('too_many')
    expect(judge(set('d0.example.com', 'month', 1))).toBe('too_many')
    expect(judge({ kind: 'block', domain: 'new.example.com' })).toBe('too_many')
    expect(judge(set('d0.example.com', 'day', 2))).toEqual(limitSet('d0.example.com', 'day', 2))
    expect(judge({ kind: 'block', domain: 'example.org' })).toBeNull()
    expect(judge({ kind: 'unblock', domain: 'example.org' })).toEqual(unblocked('example.org'))
  })
})

describe('rules folded from events', () => {
  test('contain the latest change to each rule, and the number of rules', () => {
    const rules = given(
      limitSet('example.com', 'day', 5),
      limitSet('example.com', 'month', 50),
      limitSet('example.com', 'day', 7),
      blocked('example.org'),
      blocked('example.org'),
      limitRemoved('example.com', 'month'),
      limitRemoved('example.net', 'day'),
      unblocked('example.net'),
    )
    const [at2, at3] = ['2026-09-14T00:00:02.000Z', '2026-09-14T00:00:03.000Z']
    expect(rules).toEqual({
      revision: 7,
      rules: new Map([
        [placeOf('example.com', 'day'), { domain: 'example.com', period: 'day', number: 7, actor, at: at2 }],
        [placeOf('example.org', null), { domain: 'example.org', period: null, number: null, actor, at: at3 }],
      ]),
      unreadableAt: null,
    })
  })

  test('remember the first event that cannot be read', () => {
    const rules = given(limitSet('example.com', 'day', 5))
    applyPixelEvent(rules, null, { revision: 1, actor: '', at: '' })
    applyPixelEvent(rules, null, { revision: 2, actor: '', at: '' })
    expect(rules).toEqual({ ...given(limitSet('example.com', 'day', 5)), revision: 2, unreadableAt: 1 })
  })
})

describe('the rules that cover a host', () => {
  const atMs = Date.UTC(2026, 8, 14, 12)
  const rules = given(
    limitSet('example.com', 'day', 5),
    limitSet('example.com', 'month', 50),
    limitSet('a.example.com', 'day', 2),
    blocked('blocked.example.com'),
    blocked('x.blocked.example.com'),
  )
  const day = { period: 'day', periodStart: '2026-09-14' }
  const month = { period: 'month', periodStart: '2026-09-01' }
  const com = [
    { domain: 'example.com', number: 5, ...day },
    { domain: 'example.com', number: 50, ...month },
  ]
  const a = { domain: 'a.example.com', number: 2, ...day }

  test.each([
    ['example.com', null, com],
    ['a.example.com', null, [a, ...com]],
    ['deep.a.example.com', null, [a, ...com]],
    ['aa.example.com', null, com],
    ['badexample.com', null, []],
    ['example.com.evil.org', null, []],
    ['localhost', null, []],
    ['81.2.69.142', null, []],
    ['_x.a.example.com', null, [a, ...com]],
    ['blocked.example.com', 'blocked.example.com', []],
    ['y.blocked.example.com', 'blocked.example.com', []],
    ['x.blocked.example.com', 'x.blocked.example.com', []],
    ['notblocked.example.com', null, com],
  ])('%s', (host, blockedBy, limits) => {
    expect(matchRules(rules, host, atMs)).toEqual({ blockedBy, limits })
  })

  test('all limits are listed by domain, the day before the month', () => {
    expect(windowsOf(rulesInOrder(rules), atMs)).toEqual([a, ...com])
  })
})
