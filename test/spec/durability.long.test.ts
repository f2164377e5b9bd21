/** Decision 12: a result is sent only after its facts and its charge are durable. Otherwise nothing is charged. */
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { lastCallsMs } from '../../src/call/route.ts'
import {
  type Answer,
  houseForFile,
  type LedgerFact,
  openRaw,
  type Partner,
  places,
  send,
  until,
} from '../support/house.ts'
import { expectCredits, expectErrorObject, expectNotAuthenticated } from './wire.ts'

const cleanups: (() => Promise<void>)[] = []

const house = await houseForFile()
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup()
})

const blockedLog = async () => {
  const log = await house.blockLog()
  let released: Promise<void> | undefined
  const release = (): Promise<void> => (released ??= log.release())
  cleanups.push(release)
  return { ...log, release }
}

const brokenLog = async (): Promise<() => Promise<void>> => {
  const mend = await house.breakLog()
  let mended: Promise<void> | undefined
  const once = (): Promise<void> => (mended ??= mend())
  cleanups.push(once)
  return once
}

/** Sends a lookup. The result shows whether its answer has arrived yet. */
const watched = (partner: Partner, ip: string, headers: Record<string, string> = {}) => {
  const state: { answer: Answer | undefined } = { answer: undefined }
  const answer = send(`${house.apiUrl}/v1/ip/lookup`, {
    headers: { 'x-api-key': partner.apiKey, 'content-type': 'application/json', ...headers },
    body: { ip },
  }).then((given) => {
    state.answer = given
    return given
  })
  return { state, answer }
}

const typesOf = (events: readonly LedgerFact[]): string[] => events.map(({ type }) => type)

const unavailable = {
  status: 503,
  error: 'service_unavailable',
  code: 'SYS_002',
  details: {},
}

describe('while the event log accepts nothing', () => {
  test('no answer to a known key is sent, charged or free; once the log accepts events again, all are sent and recorded', async () => {
    const partner = await house.partner({ credits: '10' })
    const before = (await house.eventsOf(partner.organizationId)).length
    const log = await blockedLog()
    const calls = [places.london, '10.0.0.1', 'nonsense'].map((ip) => watched(partner, ip))
    await log.waiting()
    // The answers to these calls show that the calls queued before them have been processed.
    for (let i = 0; i < 5; i++)
      expectNotAuthenticated(
        await send(`${house.apiUrl}/v1/ip/lookup`, { headers: { 'x-api-key': 'nobody' }, body: {} }),
      )
    expect(calls.map(({ state }) => state.answer)).toEqual([undefined, undefined, undefined])
    expect((await house.eventsOf(partner.organizationId)).slice(before)).toEqual([])
    await log.release()
    const [located, free, refused] = await Promise.all(calls.map(({ answer }) => answer))
    expect([located?.status, free?.status, refused?.status]).toEqual([200, 200, 400])
    const events = (await house.eventsOf(partner.organizationId)).slice(before)
    expect(typesOf(events).sort()).toEqual(['CreditCharged', 'KeyUsed', 'KeyUsed', 'KeyUsed'])
    expect(located?.headers.get('credits-charged')).toBe('1')
  })

  test('an append whose connection is cut is answered once it is known to be written, and charged once', async () => {
    const partner = await house.partner({ credits: '10' })
    const before = (await house.eventsOf(partner.organizationId)).length
    const log = await blockedLog()
    const call = watched(partner, places.london)
    await log.cut()
    await log.waiting()
    expect(call.state.answer).toBeUndefined()
    await log.release()
    const answer = await call.answer
    expect(answer.status).toBe(200)
    expectCredits(answer, '1', '9')
    const events = (await house.eventsOf(partner.organizationId)).slice(before)
    expect(typesOf(events)).toEqual(['KeyUsed', 'CreditCharged'])
    expect(events[0]?.metadata.request_id).toBe(answer.body.request_id)
  })
})

describe('when the event log refuses an append', () => {
  test('the answer is SYS_002 with Retry-After, without a result, and nothing is charged', async () => {
    const partner = await house.partner({ credits: '10' })
    const mend = await brokenLog()
    const answer = await house.lookup(partner, { ip: places.london })
    expectErrorObject(answer, unavailable)
    expect(answer.headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
    expect(answer.text).not.toContain('London')
    expect(answer.events).toEqual([])
    await mend()
    const again = await house.lookup(partner, { ip: places.london })
    expectCredits(again, '1', '9')
    expect(typesOf(again.events)).toEqual(['KeyUsed', 'CreditCharged'])
  })

  test('an Idempotency-Key that got SYS_002 works afterwards: charged once, then replayed', async () => {
    const partner = await house.partner({ credits: '10' })
    const headers = { 'idempotency-key': 'patient' }
    const mend = await brokenLog()
    expectErrorObject(await house.lookup(partner, { ip: places.london }, headers), unavailable)
    await mend()
    const first = await house.lookup(partner, { ip: places.london }, headers)
    expect(first.status).toBe(200)
    expect(first.headers.get('idempotent-replayed')).toBeNull()
    expectCredits(first, '1', '9')
    const again = await house.lookup(partner, { ip: places.london }, headers)
    expect(again.text).toBe(first.text)
    expectCredits(again, '0', '9')
    const charges = (await house.eventsOf(partner.organizationId)).filter(
      ({ type }) => type === 'CreditCharged',
    )
    expect(charges).toHaveLength(1)
  })

  test('a call denied by a rate limit needs no log', async () => {
    const partner = await house.partner({ limits: { requests_per_minute: 1 } })
    await house.lookup(partner, { ip: places.london })
    await brokenLog()
    expect((await house.lookup(partner, { ip: places.london })).body.code).toBe('RATE_001')
  })
})

describe('when the process ends', () => {
  test('calls in flight and calls on open connections are charged and answered, each as the last of its connection', async () => {
    const app = await house.another()
    const apiUrl = String(app.apiUrl)
    const busy = openRaw(apiUrl)
    const idle = openRaw(apiUrl)
    try {
      const partner = await house.partner({ credits: '10' })
      const before = (await house.eventsOf(partner.organizationId)).length
      const body = JSON.stringify({ ip: places.london })
      const request = `POST /v1/ip/lookup HTTP/1.1\r\nHost: x\r\nx-api-key: ${partner.apiKey}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`
      idle.write(request)
      await idle.answers(1)
      const log = await blockedLog()
      busy.write(request)
      await log.waiting()
      const left = app.leave({ pause: false })
      await until('the host takes no new connections', () => refusesConnections(apiUrl))
      idle.write(request)
      // This request is not answered, because the previous answer ends the connection.
      busy.write(request)
      await log.release()
      const inFlight = await busy.answers(2)
      const late = (await idle.answers(2)).slice(1)
      await left
      await app.close()
      for (const answers of [inFlight, late])
        expect(answers.map(({ status, headers }) => [status, headers.get('connection')])).toEqual([
          [200, 'close'],
        ])
      const events = (await house.eventsOf(partner.organizationId)).slice(before)
      expect(typesOf(events)).toEqual(Array(3).fill(['KeyUsed', 'CreditCharged']).flat())
    } finally {
      busy.close()
      idle.close()
      await app.close()
    }
  })

  test('a call that arrives so late that its answer could be cut off gets SYS_002 and is free', async () => {
    const app = await house.another()
    const late = openRaw(String(app.apiUrl))
    const partner = await house.partner({ credits: '10' })
    const before = (await house.eventsOf(partner.organizationId)).length
    const body = JSON.stringify({ ip: places.london })
    try {
      late.write(`POST /v1/ip/lookup HTTP/1.1\r\nHost: x\r\nx-api-key: ${partner.apiKey}\r\n`)
      await app.leave({ pause: false })
      const closed = app.close()
      await sleep(lastCallsMs + 100)
      late.write(`Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
      const [answer] = await late.answers(1)
      await closed
      if (answer === undefined) throw new Error('the call was not answered')
      expectErrorObject(answer, unavailable)
      expect(answer.headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
      expect(answer.headers.get('connection')).toBe('close')
      expect((await house.eventsOf(partner.organizationId)).length).toBe(before)
    } finally {
      late.close()
      await app.close()
    }
  })
})

const refusesConnections = (url: string): Promise<boolean> => {
  const { hostname, port } = new URL(url)
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname)
    socket.once('connect', () => {
      socket.destroy()
      resolve(false)
    })
    socket.once('error', () => resolve(true))
  })
}

/** New calls are refused before PostgreSQL fails during calls in progress. */
describe('when the disk is nearly full', () => {
  let partner: Partner
  beforeAll(async () => {
    partner = await house.partner({ credits: '10' })
  })
  afterEach(() => void vi.restoreAllMocks())

  const fill = (): void => {
    const { diskSpace } = house.foundation
    vi.spyOn(diskSpace, 'isFull').mockReturnValue(true)
    const space = { freeBytes: 5e6, totalBytes: 1e9, freeRatio: 0.005 }
    vi.spyOn(diskSpace, 'seen').mockReturnValue({ space, state: 'full' })
  }

  test('new calls get 503 SYS_002 with Retry-After and leave no record, and those in flight are answered', async () => {
    const blocked = await house.blockLog()
    const inFlight = house.lookup(partner, { ip: '81.2.69.142' })
    await blocked.waiting()
    fill()
    const refused = await Promise.all([
      house.lookup(partner, { ip: '81.2.69.142' }),
      house.lookup(partner, { ip: '81.2.69.142' }, { 'idempotency-key': 'full-disk' }),
      house.whoami(partner),
    ])
    for (const { status, body, headers } of refused) {
      expect([status, body.code, headers.get('retry-after')]).toEqual([503, 'SYS_002', '30'])
      expect(headers.get('x-request-id')).toBe(body.request_id)
    }
    await blocked.release()
    expect((await inFlight).status).toBe(200)
    vi.restoreAllMocks()
    const recorded = await house.eventsOf(partner.organizationId)
    expect(recorded.filter(({ type }) => type === 'KeyUsed')).toHaveLength(1)
    const again = await house.lookup(partner, { ip: '81.2.69.142' }, { 'idempotency-key': 'full-disk' })
    expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([200, null])
  })

  test('a caller without a valid key gets that error first', async () => {
    fill()
    const stranger = { ...partner, apiKey: `${partner.apiKey.slice(0, -4)}AAAA` }
    expect((await house.lookup(stranger, { ip: '81.2.69.142' })).status).toBe(401)
  })

  test('readiness names only the disk, and the service is ready again once there is room', async () => {
    fill()
    const full = await fetch(`${house.apiUrl}/readyz`)
    expect([
      full.status,
      ((await full.json()) as { checks: Record<string, unknown> }).checks.disk_space,
    ]).toEqual([503, { status: 'failed' }])
    vi.restoreAllMocks()
    expect((await fetch(`${house.apiUrl}/readyz`)).status).toBe(200)
  })
})
