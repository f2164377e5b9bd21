/** Organizations, keys and users are chosen by name, and days and times with the browser's own pickers. */
import { describe, expect, test } from 'vitest'
import { anotherKey, openOrganization } from '../support/partners.ts'
import { type Browser, browserOf, encoded, hiddenIn, roomForFile, unescaped } from './dashboard-host.ts'

const room = await roomForFile()
const { foundation } = room
const northwind = await openOrganization(foundation, 'Northwind <Traders>')
const contoso = await openOrganization(foundation, 'Contoso')
for (let i = 0; i < 25; i++) await openOrganization(foundation, 'Same & name')
const { keyId: production } = await anotherKey(foundation, northwind, { name: 'production' })
const { keyId: other } = await anotherKey(foundation, contoso, { name: 'production of Contoso' })
await room.caughtUp()
const admin = await browserOf(room, { name: 'ada', role: 'admin' })
const partner = await browserOf(room, { name: 'pat', role: 'partner', organizationId: northwind })

const optionsOf = (page: string): string[] =>
  [...page.matchAll(/<option value="([^"]*)"/g)].map(([, value = '']) => unescaped(value))

const plan = (fields: Record<string, string>) =>
  admin.submit('/commands/credits/grant', { amount: '5', ...fields })

describe('an organization is chosen', () => {
  test.each([
    ['by its name', () => 'northwind <traders>'],
    ['as a browser suggests it', () => `Northwind <Traders> (${northwind})`],
    ['by its id', () => northwind],
  ])('%s, and the plan has its id', async (_, typed) => {
    const page = await plan({ org: typed() })
    expect([page.statusCode, hiddenIn(page.body).org]).toEqual([200, [northwind]])
    expect(page.body).toMatch(new RegExp(`<dt>Organization</dt><dd>[^<]+ \\(${northwind}\\)</dd>`))
    const done = await admin.post('/commands/credits/grant', encoded(hiddenIn(page.body)))
    expect(done.body).toContain('<h1>Done</h1>')
  })

  test.each([
    ['of one', 'cont', () => `choose one of these: Contoso (${contoso}).`],
    ['of many', 'nam', () => ', ….'],
  ])('never by a part of the name %s, but the answer lists who has it', async (_, typed, said) => {
    const page = await plan({ org: typed })
    expect([page.statusCode, unescaped(page.body)]).toEqual([422, expect.stringContaining(said())])
    expect(unescaped(page.body)).toContain(`"${typed}" is not the whole name of one organization`)
  })

  test('never by a name that several have', async () => {
    const page = await plan({ org: 'same & name' })
    expect(page.statusCode).toBe(422)
    expect(page.body.match(/Same &amp; name \(org_/g)).toHaveLength(20)
    expect(unescaped(page.body)).toContain('More than one organization has the name "same & name"')
  })

  test('never by an unknown name', async () => {
    const page = await plan({ org: 'Nobody' })
    expect([page.statusCode, page.body]).toEqual([
      422,
      expect.stringContaining('No organization has &quot;Nobody&quot; in its name'),
    ])
    expect((await plan({ org: 'a\u0000b' })).statusCode).toBe(422)
    expect((await plan({ org: `Contoso (${northwind})` })).statusCode).toBe(422)
  })
})

describe('suggestions', () => {
  const suggestedTo = async (browser: Browser, path: string) => {
    const answer = await browser.get(path)
    return answer.statusCode === 200 ? optionsOf(answer.body) : answer.statusCode
  }

  test('are found by a part of a name, or by the beginning of an id', async () => {
    const said = `Northwind <Traders> (${northwind})`
    expect(await suggestedTo(admin, '/pick/organizations?field=org&org=wind')).toEqual([said])
    expect(await suggestedTo(admin, `/pick/organizations?field=org&org=${northwind}`)).toEqual([said])
    expect(await suggestedTo(admin, '/pick/organizations?field=org&org=same')).toHaveLength(20)
    expect(await suggestedTo(admin, '/pick/users?field=name&name=PA')).toEqual(['pat'])
    expect(await suggestedTo(admin, '/pick/keys?field=key&key=production')).toHaveLength(2)
    expect(
      await suggestedTo(admin, `/pick/keys?field=key&key=production&org=${encodeURIComponent(said)}`),
    ).toEqual([`production (${production})`])
  })

  test('for keys are those of its own organization, for a partner', async () => {
    const own = `/organizations/${northwind}/pick/keys?field=key&key=prod`
    expect(await suggestedTo(partner, own)).toEqual([`production (${production})`])
    expect(await suggestedTo(partner, own.replace(northwind, contoso))).toBe(404)
    for (const kind of ['organizations', 'keys', 'users'])
      expect(await suggestedTo(partner, `/pick/${kind}?field=q&q=`)).toBe(403)
  })
})

test("a partner cannot find another organization's key by name, or use its id", async () => {
  const path = `/organizations/${northwind}/key/revoke`
  const named = await partner.submit(path, { key: 'production of Contoso' })
  expect([named.statusCode, named.body]).toEqual([422, expect.stringContaining('No key has')])
  const [theirs, none] = await Promise.all(
    [other, '0123456789abcdef'].map(async (id) => (await partner.submit(path, { key: id })).body),
  )
  const said = (page = '') => /id="fault">([^<]*)</.exec(page)?.[1]
  expect(said(theirs)?.replace(other, 'ID')).toBe(said(none)?.replace('0123456789abcdef', 'ID'))
  const own = await partner.submit(path, { key: 'Production' })
  expect(hiddenIn(own.body).key).toEqual([production])
})

test('a text with U+0000 matches nothing and is not queried', async () => {
  const own = `/organizations/${northwind}/pick/keys?field=key&key=%00`
  for (const [browser, path] of [
    [partner, own],
    [admin, '/pick/users?field=name&name=pat%00'],
  ] as const) {
    const { statusCode, body } = await browser.get(path)
    expect([path, statusCode, body.includes('<option')]).toEqual([path, 200, false])
  }
  expect((await admin.get('/organizations/%00/pick/keys?field=key&key=p')).statusCode).toBe(404)
})

test('a list is filtered by name, and its file by the id', async () => {
  const page = await admin.get('/commands/key/list?org=contoso')
  expect([page.body.includes(other), page.body.includes(production)]).toEqual([true, false])
  expect(page.body).toContain(`/commands/key/list.csv?org=${contoso}`)
})
