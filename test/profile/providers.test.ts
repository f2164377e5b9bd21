import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { createIdentifiers } from '../../src/capabilities/profile/identifier.ts'
import { profileDataOf } from '../../src/capabilities/profile/mapping/mapping.ts'
import type { ProfileSettings } from '../../src/capabilities/profile/settings.ts'
import { openProviders } from '../../src/capabilities/profile/sources/configured.ts'
import type {
  ProfileProvider,
  ProfileRef,
  ProviderAnswer,
} from '../../src/capabilities/profile/sources/provider.ts'
import {
  type Clock,
  combineProviders,
  createBreaker,
  failuresMax,
  openMs,
  totalMaxMs,
} from '../../src/capabilities/profile/sources/providers.ts'

/** A clock that only moves when the test moves it. */
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
    /** Timers that are due fire in order, with all that follows from them. */
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

/** A source with scripted answers on the test's clock that counts its calls. */
const source = (name: string, clock: Clock, kinds: readonly ProfileRef['kind'][] = ['lid', 'urn']) => {
  const state = {
    script: { answer: found, tookMs: 0 } as Script,
    calls: 0,
    aborted: 0,
    deadlines: [] as number[],
  }
  const provider: ProfileProvider & { supports: (asked: ProfileRef) => boolean } = {
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

const setUp = (names: readonly string[] = ['http']) => {
  const time = manualClock()
  const sources = names.map((name) => source(name, time.clock))
  const errors: object[] = []
  const logger = { error: (fields: object) => void errors.push(fields), warn: () => undefined }
  const providers = combineProviders(
    sources.map(({ provider }) => provider),
    { clock: time.clock, logger },
  )
  const ask = (withinMs = totalMaxMs, signal = new AbortController().signal) =>
    providers.fetch(ref, { deadlineMs: time.clock.now() + withinMs, ageMaxMs: null, signal })
  const [first, second] = sources
  if (first === undefined) throw new Error('no source')
  return { ...time, providers, ask, first, second: second ?? first, errors }
}

describe('a breaker', () => {
  const worn = (answered: number, failed: number, nowMs = { value: 0 }) => {
    const breaker = createBreaker({ now: () => nowMs.value })
    for (let count = 0; count < answered; count++) breaker.admit()?.('answered')
    for (let count = 0; count < failed; count++) breaker.admit()?.('failed')
    return { breaker, nowMs }
  }

  test.each([
    [0, failuresMax - 1, 'closed'],
    [0, failuresMax, 'open'],
    [100, failuresMax, 'open'],
  ])('after %i answers and %i failures is %s', (answered, failed, state) => {
    expect(worn(answered, failed).breaker.state()).toBe(state)
  })

  test('stays closed if there is an answer between the failures', () => {
    const { breaker } = worn(0, failuresMax - 1)
    breaker.admit()?.('answered')
    for (let count = 1; count < failuresMax; count++) breaker.admit()?.('failed')
    expect(breaker.state()).toBe('closed')
  })

  test('lets no call through while open, then a single trial call decides', () => {
    const { breaker, nowMs } = worn(0, failuresMax)
    expect(breaker.admit()).toBeNull()
    nowMs.value = openMs
    expect(breaker.state()).toBe('half_open')
    const trial = breaker.admit()
    expect(breaker.admit()).toBeNull()
    trial?.('failed')
    expect(breaker.state()).toBe('open')
    expect(breaker.admit()).toBeNull()
    nowMs.value = 2 * openMs
    breaker.admit()?.('answered')
    expect(breaker.state()).toBe('closed')
    for (let count = 1; count < failuresMax; count++) breaker.admit()?.('failed')
    expect(breaker.state()).toBe('closed')
  })

  test('learns nothing from a caller who left, and that caller blocks no one', () => {
    const { breaker, nowMs } = worn(0, failuresMax)
    nowMs.value = openMs
    breaker.admit()?.('unknown')
    expect(breaker.state()).toBe('half_open')
    expect(breaker.admit()).not.toBeNull()
  })

  test('does not count calls that started before it opened', () => {
    const nowMs = { value: 0 }
    const breaker = createBreaker({ now: () => nowMs.value })
    const early = Array.from({ length: failuresMax }, () => breaker.admit())
    for (let count = 0; count < failuresMax; count++) breaker.admit()?.('failed')
    nowMs.value = openMs - 1
    for (const report of early) report?.('failed')
    expect(breaker.state()).toBe('open')
    nowMs.value = openMs
    expect(breaker.state()).toBe('half_open')
  })
})

describe('one source', () => {
  test('answers under its name', async () => {
    const { ask, providers } = setUp()
    expect(providers.name).toBe('http')
    expect(await ask()).toEqual({ ...found, provider: 'http' })
  })

  test.each([
    [3_000, 3_000],
    [60_000, totalMaxMs],
  ])('that never answers, with %i ms left, is abandoned after %i ms', async (withinMs, tookMs) => {
    const { ask, first, pass, pending } = setUp()
    first.script = { answer: 'never', tookMs: 0 }
    let answer: ProviderAnswer | null = null
    void ask(withinMs).then((one) => {
      answer = one
    })
    await pass(tookMs - 1)
    expect(answer).toBeNull()
    await pass(1)
    expect(answer).toEqual({ kind: 'transient', detail: 'too late', provider: 'http' })
    expect(first.aborted).toBe(1)
    expect(first.deadlines).toEqual([1_000 + tookMs])
    expect(pending()).toBe(0)
  })

  test('is not asked if no time is left, or if the caller has left', async () => {
    const { ask, first } = setUp()
    const left = AbortSignal.abort()
    expect(await ask(0)).toMatchObject({ kind: 'transient' })
    expect(await ask(1_000, left)).toMatchObject({ kind: 'transient', detail: 'aborted' })
    expect(first.calls).toBe(0)
  })

  test('is aborted when the caller leaves, which does not count as a failure', async () => {
    const { ask, first, providers } = setUp()
    first.script = { answer: 'never', tookMs: 0 }
    for (let count = 0; count < failuresMax * 2; count++) {
      const caller = new AbortController()
      const answer = ask(totalMaxMs, caller.signal)
      caller.abort()
      expect(await answer).toMatchObject({ kind: 'transient', detail: 'aborted' })
    }
    expect(providers.status()).toMatchObject([{ breaker: 'closed' }])
  })

  test('that throws is transient, and the bug is logged', async () => {
    const { ask, first, errors } = setUp()
    first.script = { answer: 'throws', tookMs: 0 }
    expect(await ask()).toEqual({ kind: 'transient', detail: 'failed', provider: 'http' })
    expect(errors).toMatchObject([{ provider: 'http' }])
  })

  test('that keeps failing is left alone, tried by one call, and asked again', async () => {
    const { ask, first, pass, providers } = setUp()
    first.script = { answer: down, tookMs: 0 }
    for (let count = 0; count < failuresMax + 10; count++) await ask()
    expect(first.calls).toBe(failuresMax)
    expect(providers.status()).toMatchObject([{ provider: 'http', breaker: 'open' }])
    await pass(openMs)
    first.script = { answer: found, tookMs: 100 }
    const [trial, other] = [ask(), ask()]
    await pass(100)
    expect([(await trial).kind, (await other).kind]).toEqual(['found', 'transient'])
    expect(providers.status()).toMatchObject([{ breaker: 'closed' }])
  })

  test.each(['not_found', 'gone', 'inaccessible'] as const)('that answers %s is healthy', async (kind) => {
    const { ask, first, providers } = setUp()
    first.script = { answer: { kind }, tookMs: 0 }
    for (let count = 0; count < failuresMax * 2; count++) await ask()
    expect(first.calls).toBe(failuresMax * 2)
    expect(providers.status()).toMatchObject([{ breaker: 'closed', pausedMs: 0 }])
  })

  test.each([
    [17, 17_000],
    [null, 5_000],
  ])('that asks for a pause of %j s is left alone for %i ms', async (seconds, pauseMs) => {
    const { ask, first, pass } = setUp()
    first.script = { answer: limited(seconds), tookMs: 0 }
    expect(await ask()).toEqual({ ...limited(seconds), provider: 'http' })
    first.script = { answer: found, tookMs: 0 }
    await pass(pauseMs - 1)
    expect(await ask()).toEqual({ ...limited(1), provider: 'http' })
    expect(first.calls).toBe(1)
    await pass(1)
    expect(await ask()).toMatchObject({ kind: 'found' })
  })
})

describe('two sources', () => {
  test.each([down, limited(3), { kind: 'malformed', detail: 'no JSON object' } as const])(
    'when the first fails with %j, the second is asked',
    async (failure) => {
      const { ask, first, second, providers } = setUp(['http', 'page'])
      first.script = { answer: failure, tookMs: 0 }
      expect(providers.name).toBe('http_page')
      expect(await ask()).toEqual({ ...found, provider: 'page' })
      second.script = { answer: { kind: 'not_found' }, tookMs: 0 }
      // "Not found" from the second is no evidence about the first.
      expect(await ask()).toMatchObject({ kind: failure.kind, provider: 'http' })
      second.script = { answer: { kind: 'transient', detail: 'also down' }, tookMs: 0 }
      expect(await ask()).toMatchObject({ kind: failure.kind, provider: 'http' })
    },
  )

  test.each(['not_found', 'gone', 'inaccessible'] as const)(
    'when the first answers %s, that is the answer',
    async (kind) => {
      const { ask, first, second } = setUp(['http', 'page'])
      first.script = { answer: { kind }, tookMs: 0 }
      expect(await ask()).toEqual({ kind, provider: 'http' })
      expect(second.calls).toBe(0)
    },
  )

  test('an identifier that only one supports goes to that one, and one that neither supports goes to none', async () => {
    const time = manualClock()
    const logger = { error: () => undefined, warn: () => undefined }
    const [page, http] = [source('page', time.clock, ['lid']), source('http', time.clock)]
    const asked = { deadlineMs: 9_000, ageMaxMs: null, signal: new AbortController().signal }
    const byNumber: ProfileRef = { kind: 'urn', value: '12' }
    const both = combineProviders([page.provider, http.provider], { clock: time.clock, logger })
    expect(await both.fetch(byNumber, asked)).toMatchObject({ kind: 'found', provider: 'http' })
    const alone = combineProviders([page.provider], { clock: time.clock, logger })
    expect(await alone.fetch(byNumber, asked)).toEqual({ kind: 'unsupported', provider: 'page' })
    expect(page.calls).toBe(0)
  })

  /** Enough calls to know which ones are late: the first source takes 100 ms. */
  const accustomed = async (calls = 40) => {
    const all = setUp(['http', 'page'])
    all.first.script = { answer: found, tookMs: 100 }
    for (let count = 0; count < calls; count++) {
      const answer = all.ask()
      await all.pass(100)
      await answer
    }
    return all
  }

  test('when the first is unusually late, the second overtakes it and the first is aborted', async () => {
    const { ask, first, second, pass, providers } = await accustomed()
    first.script = { answer: found, tookMs: 3_000 }
    second.script = { answer: found, tookMs: 50 }
    let answer: object | null = null
    void ask().then((one) => {
      answer = one
    })
    await pass(99)
    expect(second.calls).toBe(0)
    await pass(51)
    expect(answer).toMatchObject({ kind: 'found', provider: 'page' })
    expect(first.aborted).toBe(1)
    expect(providers.status()).toMatchObject([
      { provider: 'http', hedges: 0 },
      { provider: 'page', hedges: 1 },
    ])
  })

  test('a late first can still win, and a failure of the second decides nothing', async () => {
    const { ask, first, second, pass } = await accustomed()
    first.script = { answer: found, tookMs: 120 }
    second.script = { answer: found, tookMs: 500 }
    const early = ask()
    await pass(120)
    expect(await early).toMatchObject({ provider: 'http' })
    expect(second.aborted).toBe(1)
    first.script = { answer: found, tookMs: 300 }
    second.script = { answer: down, tookMs: 1 }
    const other = ask()
    await pass(300)
    expect(await other).toMatchObject({ kind: 'found', provider: 'http' })
  })

  test.each([1, 100])(
    'when both fail after a hedge, the first gives the reason, even if the second took %i ms',
    async (tookMs) => {
      const { ask, first, second, pass } = await accustomed()
      first.script = { answer: limited(9), tookMs: 150 }
      second.script = { answer: down, tookMs }
      const answer = ask()
      await pass(300)
      expect(await answer).toMatchObject({ kind: 'rate_limited', provider: 'http' })
      expect(second.calls).toBe(1)
    },
  )

  test('at most one call in twenty is hedged, however late the first is', async () => {
    const { ask, first, second, pass } = await accustomed(20)
    second.script = { answer: found, tookMs: 10 }
    let calls = 20
    for (; calls < 400; calls++) {
      // Every fifth call is later than all before it: four times as many as may be hedged.
      first.script = { answer: found, tookMs: calls % 5 === 0 ? 110 + calls : 100 }
      const answer = ask()
      await pass(600)
      await answer
    }
    expect(second.calls).toBeLessThanOrEqual(calls / 20)
    expect(second.calls).toBeGreaterThan(10)
  })

  test('nothing is hedged before there are enough calls to know which ones are late', async () => {
    const { ask, first, second, pass } = await accustomed(10)
    first.script = { answer: found, tookMs: 5_000 }
    const answer = ask()
    await pass(5_000)
    expect(await answer).toMatchObject({ provider: 'http' })
    expect(second.calls).toBe(0)
  })
})

describe('the configured sources', () => {
  const settings: ProfileSettings = {
    PROFILE_PROVIDER: ['dataset'],
    PROFILE_HTTP_TIMEOUT_MS: 8_000,
    PROFILE_FETCHES_MAX: 100,
  }
  const open = (more: Partial<ProfileSettings>) =>
    openProviders(
      { ...settings, ...more },
      {
        pool: new pg.Pool(),
        secrets: {
          identifierHmac: (alias) => alias,
          sealer: { seal: async (text) => text, open: (text) => text },
        },
        identifiers: createIdentifiers({ domain: null, urnPrefix: null }),
        fetchPage: async () => ({ kind: 'unreachable', detail: 'ECONNREFUSED' }),
        readJsonLd: async () => ({ kind: 'none' }),
        clock: manualClock().clock,
        epochMs: () => 0,
        logger: { error: () => undefined, warn: () => undefined },
      },
    )
  const PROFILE_HTTP_URL = 'https://source.example/{lid}'

  test('are asked in the configured order', async () => {
    const both = await open({
      PROFILE_PROVIDER: ['http', 'dataset'],
      PROFILE_HTTP_URL,
      PROFILE_HTTP_KEY: 'k',
    })
    expect(both.status().map(({ provider }) => provider)).toEqual(['http', 'dataset'])
    const pages = await open({
      PROFILE_PROVIDER: ['page', 'page'],
      PROFILE_PAGE_URL: 'https://source.example/in/{lid}',
    })
    expect(pages.status().map(({ provider }) => provider)).toEqual(['page'])
    await pages.close()
  })

  test.each([
    [{ PROFILE_PROVIDER: ['http'] }, /^PROFILE_HTTP_URL: /],
    [{ PROFILE_PROVIDER: ['page'] }, /^PROFILE_PAGE_URL: /],
    [{ PROFILE_PROVIDER: ['http'], PROFILE_HTTP_URL: 'https://{lid}.example/' }, /^PROFILE_HTTP_URL/],
    [{ PROFILE_PROVIDER: ['page'], PROFILE_PAGE_URL: 'https://a.example/{urn}' }, /^PROFILE_PAGE_URL: /],
    [
      { PROFILE_PROVIDER: ['http'], PROFILE_HTTP_URL, PROFILE_HTTP_MAPPING: '/nowhere/mapping.json' },
      /^PROFILE_HTTP_MAPPING: .*cannot be read/,
    ],
  ] as const)('%j is refused with the name of its variable', async (more, message) => {
    await expect(open(more)).rejects.toThrow(message)
  })

  test('a key that cannot be sent is refused, and the error does not repeat it', async () => {
    const error = await open({
      PROFILE_PROVIDER: ['http'],
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
      expect((await open({ PROFILE_PROVIDER: ['http'], PROFILE_HTTP_URL, PROFILE_HTTP_MAPPING })).name).toBe(
        'http',
      )
      for (const text of ['{', '{"lid": 7}', '{"nick": "x"}']) {
        writeFileSync(PROFILE_HTTP_MAPPING, text)
        await expect(
          open({ PROFILE_PROVIDER: ['http'], PROFILE_HTTP_URL, PROFILE_HTTP_MAPPING }),
        ).rejects.toThrow(/^PROFILE_HTTP_MAPPING: /)
      }
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})
