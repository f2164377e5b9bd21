import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { createIdentifiers } from '../../src/capabilities/profile/identifier.ts'
import { profileDataOf } from '../../src/capabilities/profile/mapping/mapping.ts'
import type { ProfileSettings } from '../../src/capabilities/profile/settings.ts'
import { openSource } from '../../src/capabilities/profile/sources/configured.ts'
import {
  type Clock,
  failuresMax,
  guardSource,
  openMs,
  totalMaxMs,
} from '../../src/capabilities/profile/sources/guarded-source.ts'
import type {
  ProfileRef,
  ProfileSource,
  ProviderAnswer,
} from '../../src/capabilities/profile/sources/provider.ts'

const manualClock = () => {
  let nowMs = 1_000
  let timers: { atMs: number; run: () => void }[] = []
  const clock: Clock = {
    now: () => nowMs,
    after: (ms, run) => {
      const timer = { atMs: nowMs + ms, run }
      timers.push(timer)
      return () => {
        timers = timers.filter((one) => one !== timer)
      }
    },
  }
  return {
    clock,
    pending: () => timers.length,
    /** Fires the due timers in order. After each timer, everything that follows from it runs before the next. */
    pass: async (ms: number) => {
      const untilMs = nowMs + ms
      await settled()
      for (;;) {
        const [next] = timers.filter(({ atMs }) => atMs <= untilMs).toSorted((a, b) => a.atMs - b.atMs)
        if (next === undefined) break
        nowMs = Math.max(nowMs, next.atMs)
        timers = timers.filter((one) => one !== next)
        next.run()
        await settled()
      }
      nowMs = untilMs
    },
  }
}
/** All chained promises settle before the next turn of the event loop. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve))

const ref: ProfileRef = { kind: 'lid', value: 'talvora' }
const found: ProviderAnswer = {
  kind: 'found',
  ids: { lid: 'talvora', urn: null },
  data: profileDataOf({ firstname: 'Talvora' }),
  observedAtMs: 0,
  redirected: false,
}
const down: ProviderAnswer = { kind: 'transient', detail: 'status 500' }
const limited = (retryAfterSeconds: number | null): ProviderAnswer => ({
  kind: 'rate_limited',
  retryAfterSeconds,
})

type Script = { answer: ProviderAnswer | 'never' | 'throws'; tookMs: number }

/** A source with scripted answers that uses the test's clock and counts its calls. */
const source = (name: string, clock: Clock, kinds: readonly ProfileRef['kind'][] = ['lid', 'urn']) => {
  const state = {
    script: { answer: found, tookMs: 0 } as Script,
    calls: 0,
    aborted: 0,
    deadlines: [] as number[],
  }
  const provider: ProfileSource = {
    name,
    supports: ({ kind }) => kinds.includes(kind),
    fetch: async (_, { signal, deadlineMs }) => {
      state.calls++
      state.deadlines.push(deadlineMs)
      const { answer, tookMs } = state.script
      let over = false
      signal.addEventListener('abort', () => {
        if (!over) state.aborted++
      })
      if (answer === 'throws') throw new Error('a bug')
      if (answer === 'never') return await new Promise<never>(() => undefined)
      if (tookMs > 0) await new Promise<void>((resolve) => clock.after(tookMs, resolve))
      over = true
      return answer
    },
  }
  return Object.assign(state, { provider })
}

const setUp = (kinds?: readonly ProfileRef['kind'][]) => {
  const time = manualClock()
  const http = source('http', time.clock, kinds)
  const errors: object[] = []
  const logger = { error: (fields: object) => void errors.push(fields), warn: () => undefined }
  const guarded = guardSource(http.provider, { clock: time.clock, logger })
  const ask = (withinMs = totalMaxMs, asked = ref) =>
    guarded.fetch(asked, { deadlineMs: time.clock.now() + withinMs, ageMaxMs: null })
  return { ...time, guarded, ask, http, errors }
}

describe('a guarded source', () => {
  test('is not asked with an identifier that it does not support', async () => {
    const { ask, http } = setUp(['lid'])
    expect(await ask(totalMaxMs, { kind: 'urn', value: '12' })).toEqual({ kind: 'unsupported' })
    expect(http.calls).toBe(0)
  })

  test.each([
    [3_000, 3_000],
    [60_000, totalMaxMs],
  ])('that never answers, with %i ms left, is abandoned after %i ms', async (withinMs, tookMs) => {
    const { ask, http, pass, pending } = setUp()
    http.script = { answer: 'never', tookMs: 0 }
    let answer: ProviderAnswer | null = null
    void ask(withinMs).then((one) => {
      answer = one
    })
    await pass(tookMs - 1)
    expect(answer).toBeNull()
    await pass(1)
    expect(answer).toEqual({ kind: 'transient', detail: 'too late' })
    expect(http.aborted).toBe(1)
    expect(http.deadlines).toEqual([1_000 + tookMs])
    expect(pending()).toBe(0)
  })

  test('is not asked if no time is left', async () => {
    const { ask, http } = setUp()
    expect(await ask(0)).toEqual({ kind: 'transient', detail: 'no time left' })
    expect(http.calls).toBe(0)
  })

  test('that throws is transient, and the bug is logged', async () => {
    const { ask, http, errors } = setUp()
    http.script = { answer: 'throws', tookMs: 0 }
    expect(await ask()).toEqual({ kind: 'transient', detail: 'failed' })
    expect(errors).toMatchObject([{ provider: 'http' }])
  })

  test('that keeps failing is left alone, tried by one call, and asked again', async () => {
    const { ask, http, pass, guarded } = setUp()
    http.script = { answer: down, tookMs: 0 }
    for (let count = 0; count < failuresMax + 10; count++) await ask()
    expect(http.calls).toBe(failuresMax)
    expect(guarded.breaker()).toBe('open')
    await pass(openMs)
    http.script = { answer: found, tookMs: 100 }
    const [trial, other] = [ask(), ask()]
    await pass(100)
    expect([(await trial).kind, (await other).kind]).toEqual(['found', 'transient'])
    expect(guarded.breaker()).toBe('closed')
  })

  test('stays trusted if there is an answer between the failures', async () => {
    const { ask, http, guarded } = setUp()
    for (const answer of [down, found, down]) {
      http.script = { answer, tookMs: 0 }
      for (let count = 1; count < failuresMax; count++) await ask()
    }
    expect(guarded.breaker()).toBe('closed')
  })

  test('is left alone for another pause if the trial fails', async () => {
    const { ask, http, pass, guarded } = setUp()
    http.script = { answer: down, tookMs: 0 }
    for (let count = 0; count < failuresMax; count++) await ask()
    await pass(openMs)
    expect(guarded.breaker()).toBe('half_open')
    await ask()
    expect(guarded.breaker()).toBe('open')
    await pass(openMs)
    expect(guarded.breaker()).toBe('half_open')
  })

  test.each([
    ['failures', down],
    ['answers', found],
  ])('does not count %s of requests that were sent before it was left alone', async (_, late) => {
    const { ask, http, pass, guarded } = setUp()
    http.script = { answer: late, tookMs: 100 }
    const early = Array.from({ length: failuresMax }, () => ask())
    http.script = { answer: down, tookMs: 0 }
    for (let count = 0; count < failuresMax; count++) await ask()
    expect(guarded.breaker()).toBe('open')
    await pass(100)
    await Promise.all(early)
    expect(guarded.breaker()).toBe('open')
    await pass(openMs - 100)
    expect(guarded.breaker()).toBe('half_open')
  })

  test.each(['not_found', 'gone', 'inaccessible'] as const)('that answers %s is healthy', async (kind) => {
    const { ask, http, guarded } = setUp()
    http.script = { answer: { kind }, tookMs: 0 }
    for (let count = 0; count < failuresMax * 2; count++) await ask()
    expect(http.calls).toBe(failuresMax * 2)
    expect(guarded.breaker()).toBe('closed')
  })

  test.each([
    [17, 17_000],
    [null, 5_000],
  ])('that asks for a pause of %j s is left alone for %i ms', async (seconds, pauseMs) => {
    const { ask, http, pass } = setUp()
    http.script = { answer: limited(seconds), tookMs: 0 }
    expect(await ask()).toEqual(limited(seconds))
    http.script = { answer: found, tookMs: 0 }
    await pass(pauseMs - 1)
    expect(await ask()).toEqual(limited(1))
    expect(http.calls).toBe(1)
    await pass(1)
    expect(await ask()).toMatchObject({ kind: 'found' })
  })
})

describe('the configured source', () => {
  const settings: ProfileSettings = {
    PROFILE_PROVIDER: 'dataset',
    PROFILE_HTTP_TIMEOUT_MS: 8_000,
    PROFILE_FETCHES_MAX: 100,
  }
  const open = (more: Partial<ProfileSettings>) =>
    openSource(
      { ...settings, ...more },
      {
        pool: new pg.Pool(),
        secrets: {
          identifierHmac: (alias) => alias,
          sealer: { seal: async (text) => text, open: (text) => text },
        },
        identifiers: createIdentifiers({ domain: null, urnPrefix: null }),
        fetchPage: async () => ({ kind: 'unreachable', detail: 'ECONNREFUSED' }),
        clock: manualClock().clock,
        epochMs: () => 0,
        logger: { error: () => undefined, warn: () => undefined },
      },
    )
  const PROFILE_HTTP_URL = 'https://source.example/{lid}'

  test.each([
    [{ PROFILE_PROVIDER: 'http' }, /^PROFILE_HTTP_URL: /],
    [{ PROFILE_PROVIDER: 'http', PROFILE_HTTP_URL: 'https://{lid}.example/' }, /^PROFILE_HTTP_URL/],
    [
      { PROFILE_PROVIDER: 'http', PROFILE_HTTP_URL, PROFILE_HTTP_MAPPING: '/nowhere/mapping.json' },
      /^PROFILE_HTTP_MAPPING: .*cannot be read/,
    ],
  ] as const)('%j is refused with the name of its variable', async (more, message) => {
    await expect(open(more)).rejects.toThrow(message)
  })

  test('a key that cannot be sent is refused, and the error does not repeat it', async () => {
    const error = await open({
      PROFILE_PROVIDER: 'http',
      PROFILE_HTTP_URL,
      PROFILE_HTTP_KEY: 'geheim\n',
    }).catch((one: unknown) => one)
    expect(String(error)).toMatch(/PROFILE_HTTP_KEY/)
    expect(String(error)).not.toMatch(/geheim/)
  })

  test('a mapping is read from its file', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'mapping-'))
    const PROFILE_HTTP_MAPPING = join(folder, 'mapping.json')
    try {
      writeFileSync(PROFILE_HTTP_MAPPING, '{"lid": "slug"}')
      expect((await open({ PROFILE_PROVIDER: 'http', PROFILE_HTTP_URL, PROFILE_HTTP_MAPPING })).name).toBe(
        'http',
      )
      for (const text of ['{', '{"lid": 7}', '{"nick": "x"}']) {
        writeFileSync(PROFILE_HTTP_MAPPING, text)
        await expect(
          open({ PROFILE_PROVIDER: 'http', PROFILE_HTTP_URL, PROFILE_HTTP_MAPPING }),
        ).rejects.toThrow(/^PROFILE_HTTP_MAPPING: /)
      }
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})
