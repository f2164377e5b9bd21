/** What "doctor" finds, as a page: one look at a time, with an end, and not again for some seconds. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Finding } from '../../src/administration/checks/check.ts'
import { createUser } from '../../src/administration/user-changes.ts'
import { createExamination } from '../../src/dashboard/examination.ts'
import { examine } from '../../src/start/doctor.ts'
import { type Browser, type DashboardHost, openDashboardHost, secretKey, signedIn } from './dashboard-host.ts'

const finding = (level: Finding['level'], about: string): Finding => ({
  ...{
    level,
    about,
    says: `${about} says <b>${level}</b>\u202e`,
    remedy: level === 'ok' ? null : `mend ${about}`,
    figures: {},
  },
})

describe('a look', () => {
  test('is one for all who ask meanwhile, and is kept for some seconds', async () => {
    let [looks, now] = [0, 1_000]
    const ending: ((found: readonly Finding[]) => void)[] = []
    const examination = createExamination(
      () => {
        looks++
        return new Promise((resolve) => ending.push(resolve))
      },
      { nowMs: () => now },
    )
    const asked = [examination.look(), examination.look(), examination.look()]
    now = 3_000
    ending[0]?.([finding('ok', 'disk')])
    const answers = await Promise.all(asked)
    expect(looks).toBe(1)
    expect(new Set(answers).size).toBe(1)
    expect(answers[0]).toMatchObject({ startedAtMs: 1_000, tookMs: 2_000 })
    now = 17_999
    expect(await examination.look()).toBe(answers[0])
    expect(looks).toBe(1)
    now = 18_000
    const again = examination.look()
    expect(looks).toBe(2)
    ending[1]?.([])
    expect((await again)?.findings).toEqual([])
  })

  test('that hangs lets pages go, is not begun beside itself, and what it finds in the end is shown', async () => {
    let looks = 0
    const ending: ((found: readonly Finding[]) => void)[] = []
    const examination = createExamination(
      () => {
        looks++
        return new Promise((resolve) => ending.push(resolve))
      },
      { waitMs: 5 },
    )
    expect(await examination.look()).toBeNull()
    expect(await examination.look()).toBeNull()
    expect(looks).toBe(1)
    ending[0]?.([finding('fault', 'disk')])
    await new Promise(setImmediate)
    expect((await examination.look())?.findings).toHaveLength(1)
    expect(looks).toBe(1)
  })

  test('that fails is told, and the next one begins anew', async () => {
    let looks = 0
    const examination = createExamination(async () => {
      if (++looks === 1) throw new Error('no')
      return []
    })
    await expect(examination.look()).rejects.toThrow('no')
    expect((await examination.look())?.findings).toEqual([])
  })
})

describe('the page', () => {
  let room: DashboardHost
  let found: readonly Finding[] = []
  let viewer: Browser

  beforeAll(async () => {
    room = await openDashboardHost({ examine: async () => found })
    const { password } = await createUser(room.foundation, {
      name: 'vi',
      role: 'viewer',
      organizationId: null,
      actor: 'cli:setup',
    })
    viewer = await signedIn(room, { name: 'vi', password })
  })
  afterAll(() => room?.close())

  test('lists what is wrong first, with what to do, and when it was looked at', async () => {
    found = [finding('ok', 'disk'), finding('warning', 'clocks'), finding('fault', 'jobs')]
    const { body, statusCode } = await viewer.get('/operations/doctor')
    expect(statusCode).toBe(200)
    expect(body).toContain('3 things were looked at: 1 fault, 1 warning.')
    expect(body).toMatch(/Looked at <time datetime="20\d\d-[^"]+">/)
    expect(body.indexOf('jobs says')).toBeLessThan(body.indexOf('clocks says'))
    expect(body.indexOf('clocks says')).toBeLessThan(body.indexOf('disk says'))
    expect(body).toContain('mend jobs')
    expect(body).toContain('&lt;b&gt;fault&lt;/b&gt;')
    expect(body).not.toContain('\u202e')
    // Kept: what is found meanwhile is not shown yet.
    found = []
    expect((await viewer.get('/operations/doctor')).body).toContain('3 things were looked at')
  })

  test('is led to from the page of operations', async () => {
    const { password } = await createUser(room.foundation, {
      name: 'op',
      role: 'operations',
      organizationId: null,
      actor: 'cli:setup',
    })
    expect((await (await signedIn(room, { name: 'op', password })).get('/operations')).body).toContain(
      'href="/operations/doctor"',
    )
  })
})

test('looks at what the command looks at', async () => {
  const room = await openDashboardHost({
    examine: () =>
      examine({
        DATABASE_URL: room.url,
        SECRET_KEY: secretKey,
        DATA_DIR: '/nonexistent',
        API_PORT: '1',
        DASHBOARD_PORT: '2',
      }),
  })
  try {
    const { password } = await createUser(room.foundation, {
      name: 'vi',
      role: 'viewer',
      organizationId: null,
      actor: 'cli:setup',
    })
    const { body, statusCode } = await (await signedIn(room, { name: 'vi', password })).get(
      '/operations/doctor',
    )
    expect(statusCode).toBe(200)
    for (const about of ['database', 'event log', 'projections', 'checkpoints', 'jobs'])
      expect(body).toContain(`data-head="What">${about}</th>`)
    expect(body).not.toContain(secretKey)
  } finally {
    await room.close()
  }
})
