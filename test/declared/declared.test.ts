/** Every administrative command and query has the same answer, events and refusals in every interface that offers it. */
import { hash, randomBytes } from 'node:crypto'
import pg from 'pg'
import pino from 'pino'
import { ulid } from 'ulid'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { lotsLeft } from '../../src/administration/credits/queries.ts'
import { declarations } from '../../src/administration/declarations.ts'
import type { Declared } from '../../src/administration/declare.ts'
import { listCheckpoints } from '../../src/administration/event-log/checkpoints.ts'
import { mayDo, roles } from '../../src/administration/roles.ts'
import { issueOperatorToken } from '../../src/administration/users/operator-tokens.ts'
import { setDisabled } from '../../src/administration/users/user-changes.ts'
import { createWebhook, setPaused } from '../../src/administration/webhooks/webhooks.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { createPixelControls } from '../../src/capabilities/index.ts'
import { requirePermission } from '../../src/cli/host.ts'
import type { Position, RecordedEvent } from '../../src/event-log/port.ts'
import type { DomainEvent } from '../../src/events/catalogue.ts'
import { jobsApplication } from '../../src/foundation/job-queue.ts'
import { balanceOf } from '../../src/ledger/account.ts'
import { LedgerUnavailable } from '../../src/ledger/command.ts'
import {
  type DashboardHost,
  encoded,
  hiddenIn,
  openDashboardHost,
  signedIn,
  tokenIn,
  unescaped,
  userWhoChose,
  waited,
} from '../dashboard/dashboard-host.ts'
import { openScene } from '../dashboard/scene.ts'
import { everyNth, exhaustive } from '../support/exhaustive.ts'
import { holdCalls } from '../support/held-calls.ts'
import { until } from '../support/house.ts'
import { pricedCall } from '../support/memory-process.ts'
import { openOrganization } from '../support/partners.ts'
import {
  environment,
  jobEnded,
  linesIn,
  onApi,
  onCommandLine,
  onDashboard,
  type Person,
} from './interfaces.ts'
import {
  recordedQueries,
  refusals,
  sampleOf,
  samplesOfNothing,
  type Things,
  withoutEvents,
} from './samples.ts'

let room: DashboardHost
const people = new Map<string, Person>()
const actor = 'cli:setup'
const nowMs = Date.now()

const person = async (name: string, role: Person['role'], organizationId: string | null = null) => {
  const user = await userWhoChose(room, { name, role, organizationId })
  const token =
    role === 'partner' ? '' : (await issueOperatorToken(room.foundation, { user: name, actor })).token
  return { user: name, role, browser: await signedIn(room, user), token }
}

/** The scene for tests that write nothing. */
let still: Things
/** An organization for tests that grant it credits or issue keys for it. */
let organizationId = ''

beforeAll(async () => {
  // The tests must not download any lists.
  vi.stubGlobal('fetch', () => Promise.reject(new TypeError('there is no network')))
  room = await openDashboardHost({ environment })
  still = await wholeScene()
  organizationId = await openOrganization(room.foundation)
  for (const role of roles) if (role !== 'partner') people.set(role, await person(`the-${role}`, role))
})
afterAll(async () => {
  vi.unstubAllGlobals()
  await room?.close()
})

const as = (role: string): Person => {
  const found = people.get(role)
  if (found === undefined) throw new Error(`there is no ${role}`)
  return found
}

const sceneWithLot = async (): Promise<Things> => {
  const scene = await openScene(room, { nowMs, days: 1 })
  const { lots } = await lotsLeft(room.foundation, scene.organizationId)
  const none = { webhookId: '', pausedWebhookId: '', deliveryId: '' }
  return { ...scene, ...none, grantId: lots[0]?.grant_id ?? '' }
}

/** A scene that also has webhooks and pixel rules. */
const wholeScene = async (): Promise<Things> => {
  const scene = await sceneWithLot()
  const { organizationId } = scene
  const webhook = () =>
    createWebhook(room.foundation, {
      organizationId,
      url: new URL('https://[::1]/inside'),
      events: ['checkpoint'],
      actor,
    })
  const [{ webhookId }, { webhookId: pausedWebhookId }] = [await webhook(), await webhook()]
  await setPaused(room.foundation, { webhookId: pausedWebhookId, paused: true, actor })
  const pixel = createPixelControls({ ...room.foundation, logger: pino({ level: 'silent' }) })
  for (const [kind, typed] of [
    ['limit', { domain: 'limited.example.com', number: '5', period: 'month' }],
    ['block', { domain: 'blocked.example.org' }],
  ] as const)
    await pixel.change(
      organizationId,
      { kind, text: (name) => ({ ...typed })[name as 'domain'] ?? '' },
      { actor, once: kind, atMs: nowMs },
    )
  await pixel.close()
  const deliveryId = `msg_${randomBytes(16).toString('hex')}`
  await room.foundation.pool.query(
    `insert into webhook_deliveries (delivery_id, webhook_id, event, payload, state, attempts, created_at, next_attempt_at)
     values ($1, $2, 'checkpoint', '{}', 'dead', 3, now(), now())`,
    [deliveryId, webhookId],
  )
  return { ...scene, webhookId, pausedWebhookId, deliveryId }
}

const sceneFor = ({ name }: Declared) => (/^(webhook|pixel) /.test(name) ? wholeScene() : sceneWithLot())

/** Replaces values that differ between two equal runs: ids, instants and digests become their kinds. */
const alike = (value: unknown): unknown =>
  JSON.parse(
    JSON.stringify(value)
      .replaceAll(/org_[0-9A-Z]{26}/g, 'ORGANIZATION')
      .replaceAll(/inv_[0-9A-Z]{26}/g, 'INVITATION')
      .replaceAll(/"(size|root|position|note)":("([^"\\]|\\.)*"|\d+)/g, '"$1":"OF THE LOG"')
      .replaceAll(/\bsample-\d+\b/g, 'USER')
      .replaceAll(/"(password|link|token|secret_hmac|secret_sha256)":"[^"]+"/g, '"$1":"SECRET"')
      .replaceAll(/rr_[0-9A-Z]{26}/g, 'RUN')
      .replaceAll(/\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b/g, 'ULID')
      .replaceAll(/\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g, 'UUID')
      .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, (at) => (at.startsWith('2099') ? at : 'INSTANT'))
      .replaceAll(/"[0-9A-Za-z]{16}"/g, '"KEY"')
      .replaceAll(/"(events|events_per_second|seconds|elapsed_ms)":[\d.]+/g, '"$1":0')
      .replaceAll(/\b(wh|msg)_[0-9A-Za-z]{26,32}/g, '$1_ID')
      .replaceAll(/whsec_[A-Za-z0-9+/=]+/g, 'whsec_SECRET')
      .replaceAll(/"milliseconds":\d+/g, '"milliseconds":0')
      .replaceAll(/enl_(live|test)_\w+/g, 'enl_$1_SECRET')
      .replaceAll(/"(secret_hmac|last4|ends_with)":"[^"]+"/g, '"$1":"OF THE KEY"')
      .replaceAll(/"[0-9A-Za-z_-]{43}"/g, '"DIGEST"')
      .replaceAll(/"(proposal|version)":\d+/g, '"$1":"NUMBER"')
      .replaceAll(/"p\d+"/g, '"PROPOSAL"'),
  )

const eventsAfter = async (head: Position): Promise<RecordedEvent[]> => {
  const { eventLog } = room.foundation
  const events: RecordedEvent[] = []
  for (let position = head + 1n; position <= (await eventLog.head()); position++) {
    const event = await eventLog.at(position)
    if (event !== null) events.push(event)
  }
  return events
}

/** The events that `work` adds to the log, with their authors. Values that differ from run to run are replaced. */
const added = async (work: () => Promise<unknown>) => {
  // Some answers show how far the projections are behind, so nothing must be left for them to read.
  await room.caughtUp()
  const before = await room.foundation.eventLog.head()
  await work()
  return (await eventsAfter(before)).map(({ type, data, metadata }) =>
    alike({ type: type as DomainEvent['type'], data: JSON.parse(data), by: JSON.parse(metadata).actor }),
  )
}

const givenFor = async (declared: Declared, scene: Things) => {
  const scope = declared.fields.find(({ control }) => control === 'organization')
  const sample = await sampleOf(declared.name)({ ...scene, foundation: room.foundation })
  return { ...sample, ...(scope && { [scope.name]: scene.organizationId }) }
}

test('every example belongs to an existing command', () => {
  expect(samplesOfNothing).toEqual([])
})

const ofScenes = new Set<string | undefined>(['organization', 'key', 'id', 'document'])

/** Commands that move credits or change prices are always tested; of the others, some. */
const tried = new Set([
  ...everyNth(12, declarations),
  ...declarations.filter(
    ({ name, changes }) => changes !== 'nothing' && /^(credits|price|rerate) /.test(name),
  ),
])

describe.each(declarations.map((one) => [one.name, one] as const))('%s', (_, declared) => {
  const testTried = test.runIf(tried.has(declared))
  const offers = (one: Declared['interfaces'][number]) => declared.interfaces.includes(one)
  /** Whether the command can change an object of the scene. It cannot if no field refers to such an object. */
  const changesScene =
    declared.changes !== 'nothing' && declared.fields.some(({ control }) => ofScenes.has(control))
  const ownScene = async () => (changesScene ? sceneFor(declared) : still)

  testTried('has the same effect and answer wherever it is offered', async () => {
    const why = refusals[declared.name]
    if (why !== undefined) return refusedEverywhere(declared, why)
    const admin = as('admin')
    const answers: unknown[] = []
    const events: unknown[] = []
    // Each interface gets its own scene. The scenes are opened in parallel, so that they are folded in fewer batches.
    const scenes = await Promise.all(declared.interfaces.map(ownScene))
    const nextScene = () => scenes.pop() ?? still
    if (offers('command line')) {
      const given = await givenFor(declared, nextScene())
      events.push(
        await added(async () => answers.push(alike(await onCommandLine(room, admin, declared, given)))),
      )
    }
    if (offers('admin API')) {
      const given = await givenFor(declared, nextScene())
      events.push(
        await added(async () => {
          const answer = await onApi(room, admin, declared, given)
          const { long } = declared
          expect([answer.statusCode, answer.body]).toEqual([
            long === undefined ? 200 : 202,
            expect.any(String),
          ])
          if (long !== undefined) {
            const job = await jobEnded(room, admin, answer)
            expect(job).toMatchObject({ name: declared.name, state: 'done', error: null })
            return answers.push(alike(job?.answer))
          }
          if (declared.types !== undefined) return answers.push(alike(linesIn(answer.body)))
          const json = answer.json()
          answers.push(alike(declared.columns === undefined ? json : json.items))
        }),
      )
    }
    if (offers('dashboard')) {
      const scene = nextScene()
      const given = await givenFor(declared, scene)
      events.push(
        await added(async () => {
          const pages = await onDashboard(admin, declared, given, scene.organizationId)
          expect(pages.map(({ statusCode }) => statusCode)).toEqual(pages.map(() => 200))
          if (declared.types !== undefined) answers.push(alike(linesIn(pages[0]?.body ?? '')))
          if (declared.changes !== 'nothing')
            expect(pages.at(-1)?.body).toMatch(/<h1>(Done|Done, with failures)<\/h1>/)
          if (declared.secret !== undefined)
            expect(pages.at(-1)?.body).toMatch(/<code id="secret">[^<]{16,}</)
        }),
      )
    }
    for (const answer of answers) expect(answer).toEqual(answers[0])
    for (const of of events) expect(of).toEqual(events[0])
    if (recordedQueries.includes(declared.name)) expect(events[0]).toHaveLength(1)
    else if (declared.changes === 'nothing') expect(events[0]).toEqual([])
    else if (!withoutEvents.includes(declared.name)) expect(events[0]).not.toEqual([])
  })

  testTried('describes its effect in a dry run, and writes nothing', async () => {
    const scene = still
    if (declared.changes === 'nothing' || !offers('admin API') || declared.name in refusals) return
    const given = await givenFor(declared, scene)
    const events = await added(async () => {
      const plan = await onApi(room, as('admin'), declared, given, { query: { plan: 'true' } })
      expect(plan.json()).toMatchObject({
        dry_run: true,
        would: expect.arrayContaining([expect.any(String)]),
      })
      if (declared.changes !== 'nothing' && declared.changes.asks !== 'never')
        expect(
          (
            await onDashboard({ browser: await askOnly(as('admin')) }, declared, given, scene.organizationId)
          )[0]?.body,
        ).toContain('name="confirmed"')
    })
    expect(events).toEqual([])
  })

  test('is available to exactly the roles of its action', async () => {
    for (const role of roles) {
      const may = mayDo(role, declared.action)
      const permitted = (() => {
        try {
          requirePermission({ actor: 'user:x', role }, declared)
          return true
        } catch {
          return false
        }
      })()
      expect([role, permitted]).toEqual([role, may])
      if (role === 'partner' || !offers('admin API') || !tried.has(declared)) continue
      // A request with an unknown field has no effect for any role.
      const answer = await onApi(room, as(role), declared, { no_such_field: 'x' })
      expect([role, answer.statusCode]).toEqual([role, may ? 400 : 403])
    }
  })

  testTried('names the missing or invalid field', async () => {
    const given: Record<string, unknown> = await givenFor(declared, still)
    // Every interface calls this function.
    const read = (values: Record<string, unknown>) => () => declared.read(values)
    for (const { name, flag, required } of declared.fields) {
      const fault = expect.objectContaining({ field: flag })
      expect(read({ ...given, [name]: 'a\u0000b' })).toThrow(fault)
      if (!required) continue
      const { [name]: _, ...rest } = given
      expect(read(rest)).toThrow(fault)
      await expect(onCommandLine(room, as('admin'), declared, rest)).rejects.toThrow(`--${flag} is required`)
    }
    // The API uses the field's name in its JSON.
    const [field] = declared.fields.toSorted((a, b) => Number(a.name === a.flag) - Number(b.name === b.flag))
    if (field === undefined || !offers('admin API')) return
    const { [field.name]: _, ...rest } = given
    for (const values of [{ ...given, [field.name]: 'a\u0000b' }, ...(field.required ? [rest] : [])]) {
      const answer = await onApi(room, as('admin'), declared, values)
      expect([answer.statusCode, answer.json().details]).toEqual([400, { field: field.name }])
    }
  })
})

const refusedEverywhere = async (declared: Declared, why: string): Promise<void> => {
  const given = await givenFor(declared, still)
  const told = await onApi(room, as('admin'), declared, given)
  expect([told.statusCode < 500, told.json().message]).toEqual([true, expect.stringContaining(why)])
  await expect(onCommandLine(room, as('admin'), declared, given)).rejects.toThrow(why)
  const pages = await onDashboard(as('admin'), declared, given, still.organizationId)
  expect([pages.at(-1)?.statusCode, pages.at(-1)?.body.toLowerCase()]).toEqual([
    422,
    expect.stringContaining(why.toLowerCase().replaceAll('"', '&quot;')),
  ])
}
const secretOnes = declarations.filter(({ secret }) => secret !== undefined)

test.each(everyNth(3, secretOnes).map((one) => [one.name, one] as const))(
  '%s shows its secret once, stores it nowhere, and does nothing when it is sent again',
  async (_, declared) => {
    const head = await room.foundation.eventLog.head()
    const { secret = '' } = declared
    const shown: string[] = []
    const [scene, other] = await Promise.all([sceneFor(declared), sceneFor(declared)])
    const headers = {
      'idempotency-key': `once ${declared.name} ${scene.organizationId}`.replaceAll(' ', '/'),
    }
    const given = await givenFor(declared, scene)
    const overApi = await added(async () => {
      const [first, again] = [
        await onApi(room, as('admin'), declared, given, { headers }),
        await onApi(room, as('admin'), declared, given, { headers }),
      ]
      shown.push(first.json()[secret])
      expect([again.statusCode, again.json()]).toEqual([200, { ...first.json(), [secret]: null }])
    })
    const givenThere = await givenFor(declared, other)
    const overPages = await added(async () => {
      const { browser } = as('admin')
      const posts: [string, string][] = []
      const noting = {
        ...browser,
        post: (url: string, body: string) => {
          posts.push([url, body])
          return browser.post(url, body)
        },
        submit: async (url: string, fields: Record<string, string | string[]>) => {
          const { body } = await browser.get(url)
          return noting.post(url, encoded({ ...hiddenIn(body), _csrf: tokenIn(body), ...fields }))
        },
      }
      const last = (await onDashboard({ browser: noting }, declared, givenThere, other.organizationId)).at(-1)
      expect(last?.headers['cache-control']).toBe('no-store')
      const [, value = ''] = /<code id="secret">([^<]+)<\/code>/.exec(last?.body ?? '') ?? []
      shown.push(value)
      const again = await browser.post(...(posts.at(-1) ?? ['', '']))
      expect([again.statusCode, again.body.includes('Already sent'), again.body.includes(value)]).toEqual([
        409,
        true,
        false,
      ])
    })
    expect(shown).toEqual(shown.map(() => expect.stringMatching(/^\S{16,}$/)))
    expect(overPages).toEqual(overApi)
    const stored = (await eventsAfter(head)).map(({ data, metadata }) => data + metadata).join()
    // The secret part of a key, a token or a link.
    for (const value of shown)
      expect(stored).not.toContain(
        /^enl_/.test(value) ? value.split('_').at(-1) : value.replace(/^http.*\//, ''),
      )
  },
)

test("a command that runs as a job has no secret, and is not for partners, because all of the operator's people see its answer", () => {
  const long = declarations.filter((one) => one.long !== undefined)
  expect(long.length).toBeGreaterThan(5)
  for (const { name, secret, action } of long)
    expect([name, secret, mayDo('partner', action)]).toEqual([name, undefined, false])
})

const ofThings = declarations.filter(
  ({ action, fields, interfaces }) =>
    interfaces.includes('dashboard') &&
    mayDo('partner', action) &&
    fields.some(({ control }) => control === 'organization') &&
    fields.some(({ control, required }) => required && (control === 'key' || control === 'id')),
)

test('a partner can use nothing that belongs to another organization, and does not learn that it exists', async () => {
  const own = await sceneWithLot()
  const { browser } = await person('petra', 'partner', own.organizationId)
  const csrf = tokenIn((await browser.get(`/organizations/${own.organizationId}/key/issue`)).body)
  const events = await added(async () => {
    for (const declared of ofThings) {
      const path = `/organizations/${own.organizationId}/${declared.name.replace(' ', '/')}`
      const given = await givenFor(declared, still)
      const things = declared.fields.filter(({ control }) => control === 'key' || control === 'id')
      const said = async (of: Record<string, unknown>) => {
        const form = Object.fromEntries(
          declared.fields.map(({ name, flag }) => [flag, String(of[name] ?? '')]),
        )
        const answer =
          declared.changes === 'nothing'
            ? await browser.get(`${path}?${encoded(form)}`)
            : await browser.submit(path, { ...form, _csrf: csrf, confirmed: 'yes' })
        const notice = /role="alert"[^>]*>([\s\S]*?)<\/p>/.exec(answer.body)?.[1]
        return [
          answer.statusCode,
          Object.values(of).reduce<string>((text, id) => text.replaceAll(String(id), 'ID'), notice ?? ''),
        ]
      }
      const missing = Object.fromEntries(
        things.map(({ name }) => [name, String(given[name]).replace(/.{4}$/, '0000')]),
      )
      const theirs = await said(given)
      expect([declared.name, ...theirs]).toEqual([declared.name, ...(await said({ ...given, ...missing }))])
      expect(theirs).toEqual([422, expect.stringContaining('ID')])
    }
  })
  expect(events).toEqual([])
})

/** Shows pages, but does not send confirmed forms. */
const askOnly = async ({ browser }: Person): Promise<Person['browser']> => ({
  ...browser,
  post: async (url, body) => (body.includes('confirmed=yes') ? browser.get(url) : browser.post(url, body)),
  submit: browser.submit,
})

describe('a form', () => {
  test('counts once, even if it is sent several times', async () => {
    const { browser } = as('finance')
    const path = `/organizations/${organizationId}/credits/grant`
    const plan = await browser.submit(path, { amount: '5', reason: 'twice' })
    const body = encoded(hiddenIn(plan.body))
    const events = await added(async () => {
      const answers = await Promise.all([browser.post(path, body), browser.post(path, body)])
      // While the first request is running, the second request gets the page of the first.
      for (const { statusCode } of answers) expect([200, 303, 409]).toContain(statusCode)
      expect((await browser.post(path, body)).body).toContain('Already sent')
    })
    expect(events).toMatchObject([{ type: 'CreditGranted', data: { amount: '5' }, by: 'user:the-finance' }])
  })

  test('still contains the typed values if a value is invalid', async () => {
    const path = `/organizations/${organizationId}/credits/grant`
    const answer = await as('admin').browser.submit(path, { amount: '1e9', reason: 'typed <b>' })
    expect(answer.statusCode).toBe(422)
    expect(answer.body).toMatch(/id="amount"[^>]*aria-invalid="true"/)
    expect(answer.body).toContain('value="typed &lt;b&gt;"')
  })

  test('with a reference that is already used reports this, and is not executed again', async () => {
    const { browser } = as('admin')
    const path = `/organizations/${organizationId}/credits/grant`
    const same = { amount: '5', reference: 'INV-1', reason: 'once' }
    const events = await added(async () => {
      const [first, second] = [await browser.submit(path, same), await browser.submit(path, same)]
      expect(
        (await waited(browser, await browser.post(path, encoded(hiddenIn(first.body))))).statusCode,
      ).toBe(200)
      expect(
        (await waited(browser, await browser.post(path, encoded(hiddenIn(second.body))))).body,
      ).toContain('Already granted')
      const third = await browser.submit(path, { ...same, reason: 'another' })
      expect(third.body).toContain('was already made under the reference &quot;INV-1&quot;')
      expect(third.body).not.toContain('name="confirmed"')
      const other = await browser.submit(path, { ...same, amount: '6' })
      expect([other.statusCode, other.body.includes('Use another reference for another movement')]).toEqual([
        422,
        true,
      ])
    })
    expect(events.filter((event) => (event as { type: string }).type === 'CreditGranted')).toHaveLength(1)
  })

  test('returns a checkpoint exactly as it was signed, line by line', async () => {
    const { browser } = as('operations')
    const { body } = await waited(browser, await browser.submit('/commands/event-log/checkpoint', {}))
    const [, note = ''] = /<pre class="kept"[^>]*>([^<]+)<\/pre>/.exec(body) ?? []
    const [last] = await listCheckpoints(room.foundation, 1)
    expect(unescaped(note).trim()).toBe(last?.note.trim())
    const further = await browser.get(`/commands/event-log/consistency?size=${Number(last?.size) + 1}`)
    expect([further.statusCode, further.body]).toEqual([
      422,
      expect.stringContaining(`The last checkpoint is at ${last?.size} leaves`),
    ])
  })
})

test('a second click while a secret is being made shows the same secret; a later one, or one with other values, shows none', async () => {
  const { browser } = as('admin')
  const { eventLog } = room.foundation
  using appends = holdCalls(eventLog, 'append', (stream) => stream.startsWith('key-'))
  const path = `/organizations/${organizationId}/key/issue`
  const { body } = await browser.get(path)
  const form = encoded({
    ...hiddenIn(body),
    _csrf: tokenIn(body),
    name: 'slow',
    permissions: 'ip_lookup',
    confirmed: 'yes',
  })
  const clicks = [browser.post(path, form), browser.post(path, form)]
  await until('the key is being issued', async () => appends.count() > 0)
  const other = await browser.post(path, form.replace('name=slow', 'name=other'))
  expect([other.statusCode, other.body.includes('enl_live_')]).toEqual([409, false])
  appends.release()
  const secrets = (await Promise.all(clicks)).map(
    (page) => /<code id="secret">(enl_live_\w+)<\/code>/.exec(page.body)?.[1],
  )
  expect(secrets).toEqual([expect.any(String), secrets[0]])
  const again = await browser.post(path, form)
  expect([again.statusCode, again.body.includes('enl_live_')]).toEqual([409, false])
})

describe('the admin API', () => {
  const grant = declarations.find(({ name }) => name === 'credits grant') as Declared
  const url = '/admin/v1/credits/grant'

  test('accepts an operator token, and nothing else', async () => {
    const payload = { organization: organizationId, amount: '5', reason: 'x' }
    const cookie = [...as('admin').browser.cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const events = await added(async () => {
      for (const headers of [
        {},
        { cookie },
        { authorization: 'Bearer enl_operator_x' },
        { authorization: 'Basic eA==' },
      ]) {
        const answer = await room.host.inject({ method: 'POST', url, headers, payload })
        expect([answer.statusCode, answer.json()]).toEqual([
          401,
          {
            error: 'unauthorized',
            message: expect.any(String),
            code: 'token',
            request_id: expect.any(String),
            details: {},
          },
        ])
      }
    })
    expect(events).toEqual([])
  })

  test.each(['plan=1', 'plan=TRUE', 'plan=', 'plan=true&plan=true', 'dry_run=true', 'amount=5'])(
    'refuses ?%s of a command, which may be meant as a plan',
    async (query) => {
      const events = await added(async () => {
        const answer = await room.host.inject({
          method: 'POST',
          url: `${url}?${query}`,
          headers: { authorization: `Bearer ${as('admin').token}` },
          payload: { organization: organizationId, amount: '5', reason: 'x' },
        })
        expect([answer.statusCode, answer.json().details.field]).toEqual([400, query.split('=')[0]])
      })
      expect(events).toEqual([])
    },
  )

  const ownPrice = () => ({
    organization: still.organizationId,
    withdraw: '0197a2c4-5d1e-5b7a-8f00-3c2b1a9d8e7f',
  })
  test.each([
    ['user token', 'revoke', () => ({ name: as('admin').user, id: 'l1WO9Eavc8p3Riys' })],
    ['price override', 'withdraw', () => ({ ...ownPrice(), sku: 'ip_lookup', amount: '0.5' })],
    ['price override', 'withdraw', () => ({ ...ownPrice(), amount: 'none' })],
    ['price override', 'withdraw', () => ({ ...ownPrice(), effective_from: '2999-01-01' })],
    // `1` is a version number, not the id of a proposal, even if a proposal `p1` exists.
    ['price approve', 'proposal', () => ({ proposal: '1' })],
  ] as const)('refuses values of "%s" that do not fit', async (name, field, given) => {
    const declared = declarations.find((one) => one.name === name) as Declared
    const events = await added(async () => {
      for (const query of [{ plan: 'true' }, {}]) {
        const answer = await onApi(room, as('admin'), declared, given(), { query })
        expect([answer.statusCode, answer.json().details.field]).toEqual([400, field])
      }
    })
    expect(events).toEqual([])
  })

  test('refuses a body in which a member occurs twice, that is nested too deeply, or that is not UTF-8', async () => {
    const body = (reason: string) => `{"organization":"${organizationId}","amount":"5",${reason}}`
    const events = await added(async () => {
      for (const payload of [
        body('"amount":"5000","reason":"x"'),
        body('"reason":"x","\\u0061mount":"5000"'),
        body(`"reason":${'['.repeat(30_000)}${']'.repeat(30_000)}`),
        Buffer.from(body('"reason":"\u00ff"'), 'latin1'),
      ]) {
        const answer = await room.host.inject({
          method: 'POST',
          url,
          payload,
          headers: { authorization: `Bearer ${as('admin').token}`, 'content-type': 'application/json' },
        })
        expect([answer.statusCode, answer.json().code]).toEqual([400, 'body'])
      }
    })
    expect(events).toEqual([])
  })

  test("refuses a person's token immediately when the person is disabled", async () => {
    const ben = await person('ben', 'finance')
    const given = { organization: organizationId, amount: '5', reason: 'x' }
    expect((await onApi(room, ben, grant, given)).statusCode).toBe(200)
    await setDisabled(room.foundation, { name: 'ben', disabled: true, reason: 'left', actor })
    const answer = await onApi(room, ben, grant, given)
    expect([answer.statusCode, answer.json().message]).toEqual([401, expect.stringContaining('revoked')])
  })

  test('executes a request with an Idempotency-Key once, even if two requests arrive at the same time', async () => {
    const given = { organization: organizationId, amount: '5', reason: 'once' }
    const headers = { 'idempotency-key': `key-${organizationId}` }
    const ask = (more = given) => onApi(room, as('finance'), grant, more, { headers })
    const events = await added(async () => {
      const answers = await Promise.all([ask(), ask(), ask()])
      expect(answers.filter(({ statusCode }) => statusCode === 200).length).toBeGreaterThan(0)
      for (const { statusCode } of answers) expect([200, 409]).toContain(statusCode)
      const again = await ask()
      expect([again.statusCode, again.headers['idempotent-replayed']]).toEqual([200, 'true'])
      expect((await ask({ ...given, amount: '6' })).statusCode).toBe(409)
      // The same key from another person is a different key.
      expect((await onApi(room, as('admin'), grant, { ...given, amount: '0' }, { headers })).statusCode).toBe(
        400,
      )
    })
    expect(events).toHaveLength(1)
  })

  test.each(['', 'two words', 'k'.repeat(256), 'käse'])(
    'refuses the Idempotency-Key "%s", which could be the key of another request',
    async (key) => {
      const given = { organization: organizationId, amount: '5', reason: 'once' }
      const headers = { 'idempotency-key': key }
      const answer = await onApi(room, as('finance'), grant, given, { headers })
      expect([answer.statusCode, answer.json().details]).toEqual([400, { field: 'Idempotency-Key' }])
    },
  )

  test("accepts a person's e-mail address in a body, but never in a URL", async () => {
    const explain = declarations.find(({ name }) => name === 'ledger explain') as Declared
    const given = { request: still.requestId, input: 'ada@example.com' }
    const headers = { authorization: `Bearer ${as('finance').token}` }
    const url = '/admin/v1/ledger/explain'
    expect((await room.host.inject({ url, query: given, headers })).statusCode).toBe(405)
    const answer = await onApi(room, as('finance'), explain, given)
    expect([answer.statusCode, answer.json().input]).toEqual([
      200,
      expect.objectContaining({ verdict: 'no' }),
    ])
  })

  test('stores no hash of a request that can be computed without a key, because the request might name a person to erase', async () => {
    const erase = declarations.find(({ name }) => name === 'profiles erase') as Declared
    const given = { id: 'ada-lovelace' }
    const headers = { 'idempotency-key': 'erase-1' }
    expect((await onApi(room, as('admin'), erase, given, { headers })).statusCode).toBe(200)
    const guessed = JSON.stringify([`profiles erase ${JSON.stringify(given)}`])
    const { rows } = await room.foundation.pool.query('select 1 from admin_requests where asked_hash = $1', [
      hash('sha256', guessed, 'buffer'),
    ])
    expect(rows).toEqual([])
  })

  test('works on a limited number of requests per person, and refuses the others immediately', async () => {
    const { ledger } = room.foundation
    using submissions = holdCalls(ledger, 'submit', () => true)
    const ask = () =>
      onApi(room, as('finance'), grant, { organization: organizationId, amount: '1', reason: 'x' })
    const held = Array.from({ length: 8 }, ask)
    await until('eight are under way', async () => submissions.count() >= 8)
    const ninth = await ask()
    expect([ninth.statusCode, ninth.json().code, ninth.headers['retry-after']]).toEqual([429, 'limited', '1'])
    submissions.release()
    expect((await Promise.all(held)).map(({ statusCode }) => statusCode)).toEqual(Array(8).fill(200))
    expect((await ask()).statusCode).toBe(200)
  })

  test('releases the key of a request whose ledger was unavailable, because nothing was done', async () => {
    const given = { organization: organizationId, amount: '5', reason: 'once' }
    const headers = { 'idempotency-key': `away-${organizationId}` }
    const ask = () => onApi(room, as('finance'), grant, given, { headers })
    const away = vi
      .spyOn(room.foundation.ledger, 'submit')
      .mockRejectedValueOnce(new LedgerUnavailable('away'))
    expect((await ask()).statusCode).toBe(503)
    away.mockRestore()
    const events = await added(async () => {
      const again = await ask()
      expect([again.statusCode, again.headers['idempotent-replayed']]).toEqual([200, undefined])
      expect((await ask()).headers['idempotent-replayed']).toBe('true')
    })
    expect(events).toHaveLength(1)
  })

  test('allows a key again if its request was refused', async () => {
    const headers = { 'idempotency-key': 'again' }
    const missing = { organization: 'org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y', amount: '5', reason: 'x' }
    for (let times = 0; times < 2; times++) {
      const answer = await onApi(room, as('admin'), grant, missing, { headers })
      expect([answer.statusCode, answer.json().code]).toEqual([422, 'refused'])
    }
  })

  test('executes a request again if its Idempotency-Key was used more than a day ago', async () => {
    const given = { organization: organizationId, amount: '5', reason: 'each day' }
    const headers = { 'idempotency-key': `each-day-${organizationId}` }
    const events = await added(async () => {
      expect((await onApi(room, as('finance'), grant, given, { headers })).statusCode).toBe(200)
      await room.foundation.pool.query("update admin_requests set sent_at = sent_at - interval '25 hours'")
      const again = await onApi(room, as('finance'), grant, given, { headers })
      expect([again.statusCode, again.headers['idempotent-replayed']]).toEqual([200, undefined])
    })
    expect(events).toHaveLength(2)
  })

  test.each([
    ['not json', 'application/json', 400],
    ['[]', 'application/json', 400],
    ['{}', 'text/plain', 400],
    [JSON.stringify({ reason: 'x'.repeat(70_000) }), 'application/json', 400],
  ])('a body such as %.12j as %s is refused', async (payload, type, status) => {
    const headers = { authorization: `Bearer ${as('admin').token}`, 'content-type': type }
    expect((await room.host.inject({ method: 'POST', url, headers, payload })).statusCode).toBe(status)
  })

  test('reports an unknown path, and the methods that a path accepts', async () => {
    const headers = { authorization: `Bearer ${as('admin').token}` }
    expect((await room.host.inject({ url: '/admin/v1/credits/steal', headers })).statusCode).toBe(404)
    expect((await room.host.inject({ url, headers })).json().message).toBe(`${url} accepts POST`)
  })

  test('pages a list', async () => {
    const { organizationId } = still
    const lots = declarations.find(({ name }) => name === 'credits lots') as Declared
    const ask = async (query: Record<string, string>) =>
      (await onApi(room, as('viewer'), lots, { organization: organizationId }, { query })).json()
    const first = await ask({ limit: '2' })
    expect([first.items.length, first.next_cursor]).toEqual([2, '2'])
    expect(await ask({ limit: '2', cursor: first.next_cursor })).toMatchObject({
      items: [{}],
      next_cursor: null,
    })
    expect(await ask({ limit: '0' })).toMatchObject({ code: 'input', details: { field: 'limit' } })
  })

  test('pages a list that is not in memory by a cursor over its rows, to the end', async () => {
    const { organizationId } = still
    await room.caughtUp()
    const audit = declarations.find(({ name }) => name === 'audit list') as Declared
    const ask = async (query: Record<string, string>) =>
      (await onApi(room, as('viewer'), audit, { about: organizationId }, { query })).json()
    const all = await ask({})
    expect([all.items.length > 3, all.next_cursor]).toEqual([true, null])
    const seen: unknown[] = []
    let cursor: string | null = null
    do {
      const page = await ask({ limit: '2', ...(cursor !== null && { cursor }) })
      expect(page.items.length).toBeLessThanOrEqual(2)
      seen.push(...page.items)
      cursor = page.next_cursor
    } while (cursor !== null)
    expect(seen).toEqual(all.items)
    expect(await ask({ cursor: 'x' })).toMatchObject({ code: 'input', details: { field: 'cursor' } })
  })

  test('limits invalid tokens by address', async () => {
    const statuses: number[] = []
    for (let times = 0; times < 32; times++) {
      const answer = await room.host.inject({ url, method: 'POST', remoteAddress: '127.9.9.9', payload: {} })
      statuses.push(answer.statusCode)
    }
    expect([statuses[0], statuses.at(-1)]).toEqual([401, 429])
    const elsewhere = await onApi(room, as('admin'), grant, {})
    expect(elsewhere.statusCode).toBe(400)
  })
})

test('if a leaked key has more refunds than the command makes itself, a job makes them, and the same command repeats it', {
  skip: !exhaustive,
}, async () => {
  const { organizationId, keyId } = await sceneWithLot()
  const { ledger } = room.foundation
  const balanceNow = async () => balanceOf(await ledger.account(organizationId), Date.now())
  const before = await balanceNow()
  const calls = Array.from({ length: 101 }, () => pricedCall({ requestId: ulid(), price: '2', keyId }))
  for (const batch of [calls.slice(0, 50), calls.slice(50)])
    await Promise.all(batch.map((one) => ledger.submit(organizationId, one)))
  expect(before - (await balanceNow())).toBe(parseCredits('202'))
  const declared = declarations.find(({ name }) => name === 'key replace-leaked') as Declared
  const from = new Date(calls[0]?.atMs ?? 0).toISOString()
  const ask = async () =>
    (await onApi(room, as('admin'), declared, { key: keyId, from, reference: 'SEC-20' })).json()
  const verify = declarations.find(({ name }) => name === 'ledger verify') as Declared
  await jobEnded(room, as('admin'), await onApi(room, as('admin'), verify, {}))
  // The name of this connection is that of a process that runs jobs. The suite's own worker uses a different name.
  const worker = new pg.Client({
    connectionString: room.foundation.url,
    application_name: jobsApplication,
  })
  await worker.connect()
  const answers = []
  try {
    for (const refunded of [101, 0]) {
      const answer = await ask()
      answers.push(answer)
      const location = `/admin/v1/jobs/${answer.refunds.job_id}`
      const job = await jobEnded(room, as('admin'), { headers: { location } })
      expect(job).toMatchObject({ state: 'done', answer: { calls: 101, refunded, not_refunded: [] } })
      expect(await balanceNow()).toBe(before)
    }
  } finally {
    await worker.end()
  }
  const [first, again] = answers
  expect(first.api_key).toMatch(/^enl_live_/)
  expect(again).toMatchObject({ api_key_id: first.api_key_id, api_key: null })
})
