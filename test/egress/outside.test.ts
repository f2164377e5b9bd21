/** Only a limited number of other servers' pages is fetched at a time. Waiting for a place counts towards the deadline. */
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { parseConfig } from '../../src/config.ts'
import { createDns } from '../../src/egress/dns.ts'
import { createEgressGuard } from '../../src/egress/guard.ts'
import { createOutside, type Outside } from '../../src/egress/outside.ts'
import { openOutside } from '../../src/start/capabilities.ts'
import { takesAtMost } from '../support/takes-at-most.ts'

const pagesMax = 16
const plentyMs = 60_000

const openServer = async () => {
  const held: ServerResponse[] = []
  let openNow = 0
  let openMax = 0
  const server = createServer((_, response) => {
    openNow++
    openMax = Math.max(openMax, openNow)
    response.on('close', () => {
      openNow--
    })
    held.push(response)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  let asked = 0
  return {
    url: `http://127.0.0.1:${port}/`,
    asked: () => asked + held.length,
    openMax: () => openMax,
    answerOne: () => {
      const [response] = held.splice(0, 1)
      if (response === undefined) throw new Error('no request has arrived')
      asked++
      response.writeHead(200, { 'content-type': 'text/html' }).end('<p>')
    },
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

let server: Awaited<ReturnType<typeof openServer>>
let outside: Outside
beforeEach(async () => {
  server = await openServer()
  outside = createOutside({
    guard: createEgressGuard({ allow: ['127.0.0.0/8'] }),
    operatorGuard: createEgressGuard({ allow: [] }),
    mailGuard: createEgressGuard({ allow: [] }),
    dns: createDns({ servers: ['127.0.0.1:1'], clock: performance }),
  })
})
afterEach(() => server.close())

const page = (deadlineMs: number, signal?: AbortSignal) =>
  outside.fetchPage({
    url: server.url,
    accept: ['text/html'],
    deadlineMs,
    ...(signal === undefined ? {} : { signal }),
  })

const asked = (count: number) =>
  vi.waitFor(() => expect(server.asked()).toBe(count), { timeout: 30_000, interval: 5 })

const takeAll = async () => {
  const pages = Array.from({ length: pagesMax }, () => page(plentyMs))
  await asked(pagesMax)
  return pages
}

describe('pages of other servers', () => {
  test('at most 16 are fetched at a time; the others follow in order, and all are fetched', async () => {
    const pages = Array.from({ length: pagesMax * 4 }, () => page(plentyMs))
    for (let done = 0; done < pages.length; done++) {
      await asked(Math.min(pages.length, pagesMax + done))
      server.answerOne()
      await pages[done]
    }
    const kinds = new Set((await Promise.all(pages)).map(({ kind }) => kind))
    expect([...kinds]).toEqual(['page'])
    expect(server.openMax()).toBe(pagesMax)
  })

  test('waiting for a place counts towards the deadline: no fetch takes longer than its limit', async () => {
    const deadlineMs = 1_000
    const pages = Array.from({ length: pagesMax * 4 }, () => page(deadlineMs))
    for (const { kind } of await takesAtMost(2 * deadlineMs, Promise.all(pages))) expect(kind).toBe('timeout')
  })

  test('a fetch that waited has only the rest of its time', async () => {
    const pages = await takeAll()
    const deadlineMs = 1_000
    const waiting = takesAtMost(1.4 * deadlineMs, page(deadlineMs))
    await new Promise((resolve) => setTimeout(resolve, deadlineMs / 2))
    server.answerOne()
    await pages[0]
    await asked(pagesMax + 1)
    expect(await waiting).toEqual({ kind: 'timeout', detail: 'deadline' })
  })

  test('an aborted fetch stops waiting, and takes no place afterwards', async () => {
    const pages = await takeAll()
    const stop = new AbortController()
    const waiting = page(plentyMs, stop.signal)
    const next = page(plentyMs)
    stop.abort()
    expect(await waiting).toMatchObject({ kind: 'timeout' })
    server.answerOne()
    await pages[0]
    await asked(pagesMax + 1)
    for (let n = 0; n < pagesMax; n++) server.answerOne()
    expect(await next).toMatchObject({ kind: 'page' })
    await takeAllAgain()
  })

  test('a fetch that is already aborted does not wait for a place', async () => {
    await takeAll()
    expect(await page(plentyMs, AbortSignal.abort())).toMatchObject({ kind: 'timeout' })
  })
})

const takeAllAgain = async (): Promise<void> => {
  const before = server.asked()
  const pages = Array.from({ length: pagesMax }, () => page(plentyMs))
  await asked(before + pagesMax)
  for (const _ of pages) server.answerOne()
  await Promise.all(pages)
}

test('EGRESS_ALLOW applies to servers that the operator configured, SMTP_ALLOW to mail servers, and neither to URLs from others', async () => {
  const ways = openOutside(
    parseConfig({ EGRESS_ALLOW: '127.0.0.1', SMTP_ALLOW: '10.1.0.0/16', DNS_SERVERS: '127.0.0.1:1' }),
  )
  const allows = (guard: Outside['guard']) => ['127.0.0.1', '10.1.2.3'].filter(guard.mayDial)
  expect(allows(ways.guard)).toEqual([])
  expect(allows(ways.operatorGuard)).toEqual(['127.0.0.1'])
  expect(allows(ways.mailGuard)).toEqual(['10.1.2.3'])
  const got = { url: server.url, accept: ['text/html'], deadlineMs: plentyMs }
  const sent = { url: server.url, headers: {}, body: '', deadlineMs: plentyMs }
  const refused = { kind: 'refused', detail: 'address' }
  expect([await ways.fetchPage(got), await ways.post(sent)]).toEqual([refused, refused])
  const reached = [ways.fetchUpstream(got), ways.postOwn(sent)]
  await asked(2)
  for (const _ of reached) server.answerOne()
  expect((await Promise.all(reached)).map(({ kind }) => kind)).toEqual(['page', 'answered'])
})
