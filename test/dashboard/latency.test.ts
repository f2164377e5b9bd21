/** The latency of all processes, read from a server that takes the place of Prometheus. Invalid answers never lead to a wrong figure. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeEach, expect, test } from 'vitest'
import { parseConfig } from '../../src/config.ts'
import { partOf } from '../../src/dashboard/html.ts'
import { latencyFromPrometheus, latencyOfProcess } from '../../src/dashboard/latency.ts'
import { latencyFigure } from '../../src/dashboard/pages/overview.ts'
import { openOutside } from '../../src/start/capabilities.ts'

const now = 1_795_780_800
let asked: URL[] = []
/** The server's answer to a path; null means that it never answers. */
let answerTo: (path: string) => string | null = () => null
let status = 200
const hanging = new Set<() => void>()

const server = createServer((request, response) => {
  const at = new URL(request.url ?? '', 'http://prometheus')
  asked.push(at)
  const body = answerTo(at.pathname)
  if (body === null) hanging.add(() => response.destroy())
  else response.writeHead(status, { 'content-type': 'application/json' }).end(body)
})
await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/prometheus`
beforeEach(() => {
  asked = []
  status = 200
})
afterAll(() => {
  for (const end of hanging) end()
  server.close()
})

const latency = (allow = '127.0.0.0/8') => {
  const { fetchUpstream } = openOutside(parseConfig({ EGRESS_ALLOW: allow }))
  return latencyFromPrometheus({ url, fetchUpstream, nowMs: () => now * 1_000 })
}
const vector = (value: unknown): string =>
  JSON.stringify({
    status: 'success',
    data: { resultType: 'vector', result: [{ metric: {}, value: [now, value] }] },
  })
const matrix = (values: readonly [number, string][]): string =>
  JSON.stringify({ status: 'success', data: { resultType: 'matrix', result: [{ metric: {}, values }] } })

test("the figure covers the last hour, and is shown next to yesterday's same hour and the hours between", async () => {
  const hours: [number, string][] = [
    [now - 86_400, '0.25'],
    [now - 7_200, 'NaN'],
    [now, '0.125'],
  ]
  answerTo = (path) => (path.endsWith('/query') ? vector('0.125') : matrix(hours))
  const ask = latency()
  const measured = { kind: 'measured', seconds: 0.125, of: 'last hour', yesterdaySeconds: 0.25 } as const
  expect(await ask()).toEqual({ ...measured, hours: [0.25, 0.125] })
  expect(asked.map(({ pathname }) => pathname).sort()).toEqual([
    '/prometheus/api/v1/query',
    '/prometheus/api/v1/query_range',
  ])
  expect(asked[0]?.searchParams.get('query')).toContain('enrichment_call_duration_seconds_bucket')
  await ask()
  expect(asked).toHaveLength(2)
  const shown = partOf(latencyFigure({ ...measured, hours: [0.25, 0.125] }))
  expect(shown).toContain(
    '<strong>125 ms</strong><small>last hour; 250 ms in the same hour yesterday</small><svg',
  )
})

test.each([
  ['NaN, where there were no calls', vector('NaN'), 'no calls in the last hour'],
  [
    'no result',
    '{"status":"success","data":{"resultType":"vector","result":[]}}',
    'no calls in the last hour',
  ],
  ['a number that is no text', vector(0.1), 'cannot be read'],
  ['an error', '{"status":"error","error":"x"}', 'cannot be read'],
  ['text that is not JSON', '<html>', 'cannot be read'],
  ['too much', `"${'x'.repeat(100_000)}"`, 'too_large'],
  ['nothing', null, 'did not answer in time'],
])('with %s the figure is absent, with the reason', async (_, body, why) => {
  answerTo = () => body
  const absent = await latency()()
  expect(absent).toEqual({ kind: 'absent', why: expect.stringContaining(why) })
  expect(partOf(latencyFigure(absent))).toMatch(/<strong>–<\/strong><small>/)
})

test('an error from the server, and a URL that EGRESS_ALLOW does not include, are also shown as reasons', async () => {
  answerTo = () => vector('0.1')
  status = 500
  expect(await latency()()).toEqual({ kind: 'absent', why: 'Prometheus answered with status 500' })
  status = 200
  asked = []
  expect(await latency('10.0.0.0/8')()).toMatchObject({
    kind: 'absent',
    why: expect.stringContaining('refused'),
  })
  expect(asked).toEqual([])
})

test("without Prometheus, the figure is this process's own, and absent before its first call", () => {
  expect(latencyOfProcess(null)).toBeNull()
  expect(latencyOfProcess(0.01)).toMatchObject({ seconds: 0.01, of: 'since this process started' })
})

test('the URL contains no password, and the error does not repeat one', () => {
  expect(() => parseConfig({ PROMETHEUS_URL: 'http://me:hidden@prometheus:9090' })).toThrow(
    /^(?!.*hidden)PROMETHEUS_URL/,
  )
})
