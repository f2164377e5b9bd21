/** Credits are granted, adjusted and watched by forms that say what they will do, once each; organizations are registered. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { adjust } from '../../src/administration/credits/corrections.ts'
import { balance } from '../../src/administration/credits/credits.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import {
  type Browser,
  type DashboardHost,
  encoded,
  openDashboardHost,
  signedIn,
  tokenIn,
  userWhoChose,
} from './dashboard-host.ts'

let room: DashboardHost
let ada: Browser
let partner: Browser
let id = ''
let other = ''
let base = ''
const actor = 'cli:setup'

beforeAll(async () => {
  room = await openDashboardHost()
  const organization = async (name: string): Promise<string> =>
    (await createOrganization(room.foundation, { name, overdraftLimit: parseCredits('50'), actor }))
      .organizationId
  ;[id, other] = [await organization('Northwind'), await organization('Contoso')]
  base = `/organizations/${id}/credits`
  const first = await userWhoChose(room, { name: 'ada', role: 'admin', organizationId: null, actor })
  const theirs = await userWhoChose(room, { name: 'nora', role: 'partner', organizationId: id, actor })
  await room.caughtUp()
  ada = await signedIn(room, first)
  partner = await signedIn(room, theirs)
})
afterAll(() => room?.close())

const events = async (type: string, organizationId = id) =>
  (await room.foundation.eventLog.read(ledgerStream(organizationId), { from: 0, max: 500 }))
    .filter((event) => event.type === type)
    .map(({ data, metadata }) => ({ ...JSON.parse(data), by: JSON.parse(metadata).actor }))

const balanceNow = async (): Promise<string> => formatCredits((await balance(room.foundation, id)).balance)

/** What a page's form would send. */
const hiddenIn = (page: string): Record<string, string> =>
  Object.fromEntries(
    [...page.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)">/g)].map(
      ([, name = '', value = '']) => [name, value.replaceAll('&lt;', '<').replaceAll('&gt;', '>')],
    ),
  )

const figureIn = (page: string, name: string): string =>
  new RegExp(`<dt>${name}</dt><dd>(.*?)</dd>`).exec(page)?.[1]?.replaceAll(/<[^>]+>/g, '') ?? 'none'

const confirmed = (act: string, page: string) =>
  ada.post(`${base}/${act}/confirmed`, encoded({ ...hiddenIn(page), _csrf: tokenIn(page) }))

describe('a grant', () => {
  test('says what it will do, writes nothing before, and does just that', async () => {
    const page = await ada.submit(`${base}/grant`, {
      ...{ amount: '1250.5', priority: '20', 'expires-at': '2099-01-31' },
      ...{ reference: 'INV-1', reason: 'invoice <b>1</b>' },
    })
    expect(page.statusCode).toBe(200)
    expect(await events('CreditGranted')).toEqual([])
    expect(figureIn(page.body, 'Balance before')).toBe('0')
    expect(figureIn(page.body, 'Balance then')).toBe('1,250.5')
    expect(figureIn(page.body, 'Expires')).toBe('2099-01-31 23:59:59 UTC')
    expect(figureIn(page.body, 'Reference')).toBe('INV-1')
    expect(page.body).toContain('invoice &lt;b&gt;1&lt;/b&gt;')
    const done = await confirmed('grant', page.body)
    expect([done.statusCode, done.headers.location]).toEqual([303, `/organizations/${id}/lots`])
    expect(await events('CreditGranted')).toMatchObject([
      {
        ...{ amount: '1250.5', priority: 20, expires_at: '2099-01-31T23:59:59.999Z', reference: 'INV-1' },
        ...{ reason: 'invoice <b>1</b>', by: 'user:ada' },
      },
    ])
    expect((await ada.get(`/organizations/${id}/lots`)).body).toContain('INV-1')
    const again = await confirmed('grant', page.body)
    expect(again.statusCode).toBe(409)
    expect(again.body).toContain('Sent before')
    expect(await events('CreditGranted')).toHaveLength(1)
  })

  test('under a reference that names it already is not made again, which both pages say', async () => {
    const same = { amount: '5', priority: '100', 'expires-at': '', reference: 'twice', reason: 'once' }
    const [first, second] = [await ada.submit(`${base}/grant`, same), await ada.submit(`${base}/grant`, same)]
    expect((await confirmed('grant', first.body)).statusCode).toBe(303)
    const late = await confirmed('grant', second.body)
    expect(late.statusCode).toBe(409)
    expect(late.body).toContain('5 credits were granted under the reference “twice” before.')
    const asked = await ada.submit(`${base}/grant`, { ...same, reason: 'another reason' })
    expect(asked.body).toContain('Nothing is written a second time.')
    expect(asked.body).not.toContain('/grant/confirmed')
    const differs = await ada.submit(`${base}/grant`, { ...same, amount: '6' })
    expect(differs.statusCode).toBe(422)
    expect(differs.body).toContain('Another movement takes another reference')
    expect((await events('CreditGranted')).filter(({ reference }) => reference === 'twice')).toHaveLength(1)
  })

  test('with a reference of its own is refused where its lot would have expired', async () => {
    const answer = await ada.submit(`${base}/grant`, {
      ...{ amount: '5', priority: '1', 'expires-at': '2020-01-01', reference: 'late', reason: 'late' },
    })
    expect(answer.statusCode).toBe(422)
    expect(answer.body).toContain('has passed already')
  })

  test.each([
    [{ amount: '' }, 'amount'],
    [{ amount: '0' }, 'amount'],
    [{ amount: '-5' }, 'amount'],
    [{ amount: '1e9' }, 'amount'],
    [{ amount: '0.0000001' }, 'amount'],
    [{ amount: '1000000000.000001' }, 'amount'],
    [{ amount: '1\u0000' }, 'amount'],
    [{ priority: '1001' }, 'priority'],
    [{ priority: '-1' }, 'priority'],
    [{ priority: '' }, 'priority'],
    [{ 'expires-at': 'soon' }, 'expires-at'],
    [{ 'expires-at': '2020-01-01' }, 'expires-at'],
    [{ reason: ' ' }, 'reason'],
    [{ reason: 'a\u0000b' }, 'reason'],
    [{ reason: 'x'.repeat(201) }, 'reason'],
    [{ reference: 'a\u202eb' }, 'reference'],
  ])('with %j is refused in the form, which keeps what was typed', async (wrong, field) => {
    const before = await room.foundation.eventLog.head()
    const typed = { amount: '7', priority: '9', 'expires-at': '', reference: 'r', reason: 'typed <b>' }
    for (const path of [`${base}/grant`, `${base}/grant/confirmed`]) {
      const answer = await ada.submit(`${base}/grant`, { ...typed, ...wrong }, path)
      expect(answer.statusCode).toBe(422)
      expect(answer.body).toMatch(new RegExp(`id="${field}"[^>]*aria-invalid="true"`))
      if (field !== 'reason') expect(answer.body).toContain('value="typed &lt;b&gt;"')
    }
    expect(await room.foundation.eventLog.head()).toBe(before)
  })
})

describe('an adjustment', () => {
  test('takes from lots what it says, and no more than is available', async () => {
    const before = await balanceNow()
    const page = await ada.submit(`${base}/adjust`, { amount: '-5.25', reason: 'counted twice' })
    expect(figureIn(page.body, 'Taken')).toBe('5.25')
    expect(page.body).toContain('Lots that credits are taken from')
    expect(await balanceNow()).toBe(before)
    expect((await confirmed('adjust', page.body)).statusCode).toBe(303)
    const after = await balanceNow()
    expect(figureIn(page.body, 'Balance then').replace(',', '')).toBe(after)
    expect(parseCredits(before) - parseCredits(after)).toBe(parseCredits('5.25'))
    const much = await ada.submit(`${base}/adjust`, { amount: '-100000', reason: 'too much' })
    expect(much.statusCode).toBe(422)
    expect(much.body).toContain('100000 credits cannot be taken')
  })

  test('under a reference is made once', async () => {
    const same = { amount: '3', reference: 'note 7', reason: 'goodwill' }
    const pages = [await ada.submit(`${base}/adjust`, same), await ada.submit(`${base}/adjust`, same)]
    const answers = [
      await confirmed('adjust', pages[0]?.body ?? ''),
      await confirmed('adjust', pages[1]?.body ?? ''),
    ]
    expect(answers.map(({ statusCode }) => statusCode)).toEqual([303, 409])
    expect(answers[1]?.body).toContain('under the reference “note 7” before')
    expect((await events('CreditAdjusted')).filter(({ amount }) => amount === '3')).toHaveLength(1)
  })

  test('that leaves less than nothing is marked as such', async () => {
    const left = (await balance(room.foundation, id)).balance
    const page = await ada.submit(`${base}/adjust`, {
      amount: formatCredits(-left - parseCredits('10')),
      reason: 'chargeback',
    })
    expect(figureIn(page.body, 'Balance then')).toBe('-10 overdrawn')
    await confirmed('adjust', page.body)
    await room.caughtUp()
    for (const path of [`/organizations/${id}`, '/', `${base}/grant`])
      expect((await ada.get(path)).body).toContain('<span class="bad">-10</span>')
    const repays = await ada.submit(`${base}/grant`, { amount: '25', priority: '1', reason: 'top-up' })
    expect(figureIn(repays.body, 'Repays of the overdraft')).toBe('10')
    await confirmed('grant', repays.body)
    await adjust(room.foundation, {
      ...{ organizationId: id, amount: parseCredits('-1'), reason: 'x', actor, dryRun: false },
    })
  })

  test.each([{ amount: '0' }, { amount: '--5' }, { amount: '' }, { reason: '' }, { amount: '-' }])(
    'with %j is refused',
    async (wrong) => {
      const answer = await ada.submit(`${base}/adjust`, { amount: '1', reason: 'fine', ...wrong })
      expect(answer.statusCode).toBe(422)
    },
  )
})

test('a threshold is set and taken away, and both are said before', async () => {
  const page = await ada.submit(`${base}/threshold`, { amount: '100' })
  expect([figureIn(page.body, 'Told below, now'), figureIn(page.body, 'Then')]).toEqual(['not told', '100'])
  const done = await confirmed('threshold', page.body)
  expect([done.statusCode, done.headers.location]).toEqual([303, `${base}/threshold`])
  expect((await ada.get(`${base}/threshold`)).body).toContain('It is 100 credits now.')
  const none = await ada.submit(`${base}/threshold`, { amount: '' })
  expect([figureIn(none.body, 'Told below, now'), figureIn(none.body, 'Then')]).toEqual(['100', 'not told'])
  await confirmed('threshold', none.body)
  expect(await events('BalanceThresholdSet')).toMatchObject([
    { amount: '100', by: 'user:ada' },
    { amount: null, by: 'user:ada' },
  ])
  expect((await ada.submit(`${base}/threshold`, { amount: '-1' })).statusCode).toBe(422)
})

test('a partner grants itself nothing, and learns nothing of others', async () => {
  const csrf = tokenIn((await partner.get(`/organizations/${id}`)).body)
  const before = await room.foundation.eventLog.head()
  const body = encoded({ _csrf: csrf, amount: '1000', priority: '1', reason: 'mine', name: 'Evil' })
  for (const [organizationId, status] of [
    [id, 403],
    [other, 404],
  ] as const)
    for (const act of ['grant', 'adjust', 'threshold']) {
      const path = `/organizations/${organizationId}/credits/${act}`
      expect((await partner.get(path)).statusCode).toBe(status)
      expect((await partner.post(path, body)).statusCode).toBe(status)
      expect((await partner.post(`${path}/confirmed`, body)).statusCode).toBe(status)
    }
  expect((await partner.get('/organizations/new')).statusCode).toBe(403)
  expect((await partner.post('/organizations/new', body)).statusCode).toBe(403)
  expect((await partner.get(`/organizations/${id}`)).body).not.toContain('/credits/')
  expect(await room.foundation.eventLog.head()).toBe(before)
})

describe('an organization', () => {
  test('is registered once, and leads to its first key', async () => {
    const form = await ada.get('/organizations/new')
    const body = encoded({
      ...hiddenIn(form.body),
      _csrf: tokenIn(form.body),
      ...{ name: 'Tailspin <Toys>', 'overdraft-limit': '12.5' },
    })
    const [one, two] = await Promise.all([
      ada.post('/organizations/new', body),
      ada.post('/organizations/new', body),
    ])
    expect([one.statusCode, two.statusCode].sort()).toEqual([303, 409])
    const location = String(one.headers.location ?? two.headers.location)
    const page = await ada.get(location)
    expect(page.body).toContain('Tailspin &lt;Toys&gt;')
    expect(page.body).toContain(`<a href="${location}/keys/new">Issue the first one</a>`)
    expect(await events('OrganizationRegistered', location.split('/')[2])).toMatchObject([
      { name: 'Tailspin <Toys>', overdraft_limit: '12.5', by: 'user:ada' },
    ])
    expect((await ada.get('/')).body.match(/Tailspin/g)).toHaveLength(1)
  })

  test.each([
    [{ name: ' ' }, 'name'],
    [{ name: 'a\u0000' }, 'name'],
    [{ name: 'x'.repeat(201) }, 'name'],
    [{ 'overdraft-limit': '' }, 'overdraft-limit'],
    [{ 'overdraft-limit': '-1' }, 'overdraft-limit'],
    [{ 'overdraft-limit': '1e3' }, 'overdraft-limit'],
  ])('with %j is not registered', async (wrong, field) => {
    const before = await room.foundation.eventLog.head()
    const answer = await ada.submit('/organizations/new', { name: 'Fine', 'overdraft-limit': '0', ...wrong })
    expect(answer.statusCode).toBe(422)
    expect(answer.body).toMatch(new RegExp(`id="${field}"[^>]*aria-invalid="true"`))
    expect(await room.foundation.eventLog.head()).toBe(before)
  })
})
