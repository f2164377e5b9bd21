import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server, type ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import {
  type ListName,
  listFileNames,
  listPath,
  readList,
  vendoredListFolder,
} from '../../src/capabilities/email-validation/lists/file.ts'
import { openListedDomains } from '../../src/capabilities/email-validation/lists/listed-domains.ts'
import type { RawLists } from '../../src/capabilities/email-validation/lists/packages.ts'
import {
  ListRefused,
  type ListSource,
  refreshLists,
} from '../../src/capabilities/email-validation/lists/refresh.ts'

type Answer = (response: ServerResponse) => void

const now = new Date('2026-11-21T00:00:00Z')
const sentinels = ['mailinator.com', 'guerrillamail.com', 'yopmail.com']
const throwAways = Array.from({ length: 97 }, (_, at) => `throwaway-${at}.com`)
const freeMail = Array.from({ length: 97 }, (_, at) => `somemail-${at}.com`)
const freeSentinels = ['mail2world.com', 'gmail.com', 'hotmail.com']

let folder: string
let server: Server
let answers: Record<string, Answer>
let asked: string[]
let sources: ListSource[]

const text =
  (lines: readonly string[]): Answer =>
  (response) =>
    response.end(lines.join('\n'))

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'lists-'))
  for (const name of Object.keys(listFileNames) as ListName[])
    cpSync(listPath(vendoredListFolder, name), listPath(folder, name))
  answers = {
    '/cc0': text(['# a comment', ...sentinels, ...throwAways]),
    '/mit': text(['yopmail.com', 'extra-throwaway.com']),
    '/free': (response) => response.end(JSON.stringify([...freeSentinels, ...freeMail])),
  }
  asked = []
  server = createServer((request, response) => {
    asked.push(request.url ?? '')
    const answer = answers[request.url ?? '']
    if (answer === undefined) response.writeHead(404).end('not here')
    else answer(response)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the server has no port')
  const source = (name: string, feeds: ListSource['feeds']): ListSource => ({
    name,
    url: `http://127.0.0.1:${address.port}/${name}`,
    licence: 'MIT',
    feeds,
  })
  sources = [source('cc0', 'disposable'), source('mit', 'disposable'), source('free', 'free')]
})

afterEach(async () => {
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
  rmSync(folder, { recursive: true, force: true })
})

const nothing = (): RawLists => ({ disposable: new Set(), free: new Set() })
const refresh = (more: { from?: string; deadlineMs?: number; sizeBytesMax?: number } = {}) =>
  refreshLists({ folder, sources, now, packaged: nothing, ...more })
const files = (): Record<string, string> =>
  Object.fromEntries(readdirSync(folder).map((name) => [name, readFileSync(join(folder, name), 'utf8')]))

test('downloads every source once, writes both lists sorted and with their origin, and counts', async () => {
  const report = await refresh()
  expect(asked).toEqual(['/cc0', '/mit', '/free'])
  expect(report.disposable).toMatchObject({ before: 0, after: 101, added: 101, removed: 0 })
  expect(report.free).toMatchObject({ before: 0, after: 97, added: 97, left: { curated: 3 } })
  expect(readList(folder, 'disposable')).toEqual([...sentinels, ...throwAways, 'extra-throwaway.com'].sort())
  const written = readFileSync(listPath(folder, 'disposable'), 'utf8')
  expect(written.split('\n').slice(0, 2)).toEqual([
    '# Generated 2026-11-21, not edited. 101 domains; see provenance.md.',
    `# From cc0 (MIT): ${sources[0]?.url}`,
  ])
  expect(readdirSync(folder).sort()).toEqual(
    [
      'businesses.txt',
      'disposable-exchanges.txt',
      'disposable.txt',
      'free-additions.txt',
      'free.txt',
      'providers.txt',
      'relays.txt',
    ].sort(),
  )
})

test('the same sources produce the same files', async () => {
  await refresh()
  const before = files()
  const report = await refresh()
  expect(files()).toEqual(before)
  expect(report.disposable).toMatchObject({ before: 101, after: 101, added: 0, removed: 0 })
})

test('a folder of downloads is enough, without a network', async () => {
  const from = join(folder, 'from')
  mkdirSync(from)
  writeFileSync(join(from, 'cc0.txt'), [...sentinels, ...throwAways].join('\r\n'))
  writeFileSync(join(from, 'mit.txt'), JSON.stringify(['Another-Throwaway.com']))
  writeFileSync(join(from, 'free.txt'), [...freeSentinels, ...freeMail].join('\n'))
  await refresh({ from })
  expect(asked).toEqual([])
  expect(readList(folder, 'disposable')).toContain('another-throwaway.com')
})

test('providers, relays, businesses, public suffixes, institutions and invalid entries are left out of the disposable list', async () => {
  answers['/mit'] = text([
    'duck.com',
    'zoho.com',
    'x.mail.ru',
    'test.de',
    'co.uk',
    'ddns.net',
    'acme.edu',
    'acme.ac.uk',
    'sub.mailinator.com',
    'not a domain',
    '-x.com',
    '<html>',
    'a..b.com',
    '1.2.3.4',
  ])
  const { disposable } = await refresh()
  expect(readList(folder, 'disposable')).toEqual([...sentinels, ...throwAways].sort())
  expect(disposable.left).toEqual({ curated: 4, public_suffix: 2, institution: 2, parent_listed: 1 })
})

test('disposable domains, those not named like a mail host, cheap ones and typos are left out of the free list', async () => {
  const more = ['yopmail.com', 'starbucks.com', 'somemail.xyz', 'gmial.com', 'a.somemail-1.com', 'mail.edu']
  answers['/free'] = text([...freeSentinels, ...freeMail, ...more])
  await refresh()
  expect(readList(folder, 'free')).toEqual([...freeMail].sort())
})

const refusals: Record<string, { change: () => void; says: RegExp }> = {
  'a disposable list that shrank by more than 20 %': {
    change: () => {
      answers['/cc0'] = text([...sentinels, ...throwAways.slice(0, 70)])
    },
    says: /disposable list would shrink from 101 to 74/,
  },
  'a disposable list that grew by more than 50 %': {
    change: () => {
      answers['/mit'] = text(Array.from({ length: 60 }, (_, at) => `more-${at}.com`))
    },
    says: /disposable list would grow from 101 to 160/,
  },
  'a free list that shrank by more than 20 %': {
    change: () => {
      answers['/free'] = text([...freeSentinels, ...freeMail.slice(0, 70)])
    },
    says: /free list would shrink from 97 to 70/,
  },
  'a disposable source that lists gmail.com': {
    change: () => {
      answers['/mit'] = text(['gmail.com'])
    },
    says: /mit lists gmail.com as disposable/,
  },
  'a list of something else': {
    change: () => {
      answers['/cc0'] = text(throwAways)
    },
    says: /do not contain mailinator.com/,
  },
  'damaged JSON': {
    change: () => {
      answers['/free'] = (response) => response.end('["mail2world.com", "gma')
    },
    says: /free is damaged JSON/,
  },
  'JSON of other things than texts': {
    change: () => {
      answers['/free'] = (response) => response.end('[{"domain":"gmail.com"}]')
    },
    says: /not a string/,
  },
}

test.each(Object.entries(refusals))('%s is refused, and no file changes', async (_, { change, says }) => {
  await refresh()
  const before = files()
  change()
  const refused = refresh()
  await expect(refused).rejects.toThrow(says)
  await expect(refused).rejects.toBeInstanceOf(ListRefused)
  expect(files()).toEqual(before)
})

const failures: Record<string, { answer: Answer; says: RegExp; deadlineMs?: number }> = {
  'an error status': {
    answer: (response) => response.writeHead(503).end(),
    says: /free cannot be downloaded: the answer is 503/,
  },
  'a redirect': {
    answer: (response) => response.writeHead(302, { location: '/cc0' }).end(),
    says: /free cannot be downloaded: the connection failed/,
  },
  'a broken connection': {
    answer: (response) => {
      response.write('gmail.com\n', () => response.destroy())
    },
    says: /free cannot be downloaded: the connection failed/,
  },
  'more bytes than allowed': {
    answer: (response) => response.end('x'.repeat(70_000)),
    says: /free cannot be downloaded: the file is larger than 65536 bytes/,
  },
  'endless data': {
    answer: (response) => response.write('gmail.com\n'),
    says: /free cannot be downloaded: the time limit was exceeded/,
    deadlineMs: 500,
  },
}

test.each(Object.entries(failures))(
  '%s ends the refresh, and no file changes',
  async (_, { answer, says, ...limits }) => {
    await refresh()
    const before = files()
    answers['/free'] = answer
    await expect(refresh({ sizeBytesMax: 65_536, ...limits })).rejects.toThrow(says)
    expect(files()).toEqual(before)
  },
)

test('a folder without curated lists is refused, because it would allow no domains', async () => {
  rmSync(listPath(folder, 'providers'))
  await expect(refresh()).rejects.toThrow(/ENOENT/)
})

test('refreshed lists replace those of the packages, and are not filtered by them', async () => {
  const packaged = (): RawLists => ({
    disposable: new Set(['old-throwaway.com']),
    free: new Set(['old-mail.com']),
  })
  const kindsOf = (domains: readonly string[]) => domains.map(openListedDomains(folder, packaged).kindOf)
  const domains = ['old-throwaway.com', 'old-mail.com', 'throwaway-0.com', 'somemail-0.com']
  expect(kindsOf(domains)).toEqual(['disposable', 'free', undefined, undefined])
  await refresh()
  expect(kindsOf(domains)).toEqual([undefined, undefined, 'disposable', 'free'])
})

test("a first refresh that differs too much from the packages' lists is refused", async () => {
  const packaged = (): RawLists => ({
    disposable: new Set(Array.from({ length: 1_000 }, (_, at) => `packaged-${at}.com`)),
    free: new Set(freeMail),
  })
  await expect(refreshLists({ folder, sources, now, packaged })).rejects.toThrow(
    /disposable list would shrink from 1000 to 101/,
  )
})

test.each(['disposable', 'free'] as const)('an empty refreshed %s list is refused', async (name) => {
  writeFileSync(listPath(folder, name), '# nothing\n')
  expect(() => openListedDomains(folder, nothing)).toThrow(/is empty/)
})
