/** The house rules that a compiler does not know, enforced by reading the source. */
import { readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, posix, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { errorCatalogue } from '../src/call/errors.ts'

const root = fileURLToPath(new URL('..', import.meta.url))

type Source = {
  /** Relative to the repository, with slashes. */
  readonly path: string
  readonly text: string
  /** Without comments; strings are whole. */
  readonly code: string
  /** Without comments and without what stands in strings. */
  readonly bare: string
}

const filesUnder = (folder: string): string[] =>
  readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).replaceAll('\\', '/'))
    .sort()

/** Leaves out comments and, if asked, the inside of strings. Good enough for code that Biome has formatted. */
const stripped = (text: string, { strings }: { strings: boolean }): string =>
  text.replace(
    /\/\*[\s\S]*?\*\/|\/\/[^\n]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g,
    (found) => {
      if (found.startsWith('/')) return found.replaceAll(/[^\n]/g, ' ')
      if (!strings) return found
      // What a template computes is code.
      const computed = found.startsWith('`') ? (found.match(/\$\{[^}]*\}/g) ?? []).join(' ') : ''
      return `''${computed}`
    },
  )

const sources: readonly Source[] = [...filesUnder('src'), ...filesUnder('projections')].map((path) => {
  const text = readFileSync(join(root, path), 'utf8')
  return { path, text, code: stripped(text, { strings: false }), bare: stripped(text, { strings: true }) }
})

type Import = { readonly specifier: string; readonly typeOnly: boolean }

const importsOf = ({ code }: Source): Import[] => {
  const found: Import[] = []
  for (const [, typed, names = '', specifier = ''] of code.matchAll(
    /^\s*(?:import|export)\s+(type\s+)?(?:([^'"();]*?)\s*from\s+)?['"]([^'"]+)['"]/gm,
  )) {
    const listed =
      /^\{([\s\S]*)\}$/
        .exec(names.trim())?.[1]
        ?.split(',')
        .map((name) => name.trim())
        .filter(Boolean) ?? []
    const allTypes = listed.length > 0 && listed.every((name) => name.startsWith('type '))
    found.push({ specifier, typeOnly: typed !== undefined || allTypes })
  }
  for (const [, specifier = ''] of code.matchAll(/\bimport\(\s*['"]([^'"]+)['"]\s*\)/g))
    found.push({ specifier, typeOnly: false })
  return found
}

/** `ledger`, `projections`, `capabilities/whoami`; `top` for what stands directly in src. */
const roomOf = (path: string): string => {
  const [first = '', room = '', slice = ''] = path.split('/')
  if (first === 'projections') return 'projections'
  if (room.endsWith('.ts')) return 'top'
  return room === 'capabilities' ? `capabilities/${slice}` : room
}

const targetOf = (source: Source, { specifier }: Import): string =>
  posix.join(dirname(source.path), specifier)

const describeAll = (violations: readonly string[]): string[] => [...violations].sort()

describe('who may import whom', () => {
  const pure = ['events', 'billing', 'keys', 'projections']
  const engine = ['event-log', 'ledger', 'guard', 'projector']
  const below = ['call', 'foundation', 'administration', 'top']
  const allowed: Record<string, readonly string[]> = {
    events: [],
    billing: ['events'],
    keys: ['events'],
    projections: ['events'],
    'event-log': pure,
    ledger: [...pure, 'event-log'],
    guard: [...pure, 'event-log'],
    projector: [...pure, 'event-log'],
    call: [...pure, ...engine],
    // What is counted belongs to the rooms; metrics only write it down.
    metrics: [...pure, ...engine, 'call'],
    // What leaves the house: it knows nothing of what it is for.
    egress: [],
    // A capability reads read models, follows the event log, keeps addresses secret and reaches out through egress.
    capability: [
      'call',
      'egress',
      'events',
      'projections',
      'guard/secrets.ts',
      'event-log/port.ts',
      'event-log/append-next.ts',
      'event-log/follow.ts',
      'event-log/stored-event.ts',
      'event-log/event-id.ts',
    ],
    // The embedded PostgreSQL, until it is a folder of the foundation.
    ops: ['event-log', 'top'],
    foundation: [...pure, ...engine, 'ops', 'top'],
    // It still takes its rules for typed values from the command line.
    administration: [...pure, ...engine, 'foundation', 'top', 'cli'],
    cli: [...pure, ...engine, ...below, 'ops', 'start'],
    dashboard: [...pure, ...engine, ...below, 'cli'],
    jobs: [...pure, ...engine, ...below],
    start: [...pure, ...engine, ...below, 'ops', 'cli', 'dashboard', 'jobs', 'metrics', 'capability'],
  }

  const mayImport = (from: string, target: string): boolean => {
    const room = roomOf(target)
    if (room === from || from === 'top') return true
    const rooms = allowed[from.startsWith('capabilities/') ? 'capability' : from] ?? []
    if (rooms.includes(room) || (rooms.includes('capability') && room.startsWith('capabilities/')))
      return true
    return rooms.some((one) => one.includes('.') && target.endsWith(`/${one}`))
  }

  test('every room is known', () => {
    const rooms = new Set(sources.map(({ path }) => roomOf(path)))
    expect(
      [...rooms].filter(
        (room) => room !== 'top' && !room.startsWith('capabilities/') && allowed[room] === undefined,
      ),
    ).toEqual([])
  })

  test('no room imports a room it may not know', () => {
    const violations = sources.flatMap((source) =>
      importsOf(source)
        .filter(({ specifier }) => specifier.startsWith('.'))
        .map((one) => targetOf(source, one))
        .filter((target) => !mayImport(roomOf(source.path), target))
        .map((target) => `${source.path} imports ${target}`),
    )
    expect(describeAll(violations)).toEqual([])
  })

  test('events know zod and nothing else from outside; the other pure rooms know no package at all', () => {
    const violations = sources.flatMap((source) => {
      const room = roomOf(source.path)
      if (!pure.includes(room)) return []
      return importsOf(source)
        .filter(({ specifier }) => !specifier.startsWith('.') && !specifier.startsWith('node:'))
        .filter(({ specifier }) => room !== 'events' || specifier !== 'zod')
        .map(({ specifier }) => `${source.path} imports ${specifier}`)
    })
    expect(describeAll(violations)).toEqual([])
  })

  test('imports are relative paths of files that exist, or packages', () => {
    const known = new Set(sources.map(({ path }) => path))
    const violations = sources.flatMap((source) =>
      importsOf(source)
        .filter(({ specifier }) => specifier.startsWith('.') && !specifier.endsWith('.json'))
        .map((one) => targetOf(source, one))
        .filter((target) => !known.has(target))
        .map((target) => `${source.path} imports ${target}`),
    )
    expect(describeAll(violations)).toEqual([])
  })
})

describe('purity', () => {
  const pureName = /^(decide|tariff|contract|[a-z0-9-]+-state)\.ts$/
  const pureSources = sources.filter(
    ({ path }) =>
      pureName.test(basename(path)) || ['events', 'billing', 'keys', 'projections'].includes(roomOf(path)),
  )
  const impure: Record<string, RegExp> = {
    'is asynchronous': /\b(async|await|Promise)\b/,
    'reads the clock': /\bDate\.now\b|\bnew Date\(\s*\)|(?<!new )\bDate\(|\bperformance\b|\bTemporal\.Now\b/,
    'is random': /\bMath\.random\b|\brandom(Bytes|UUID|Int|FillSync)\b|\bgetRandomValues\b/,
    'touches the process': /\bprocess\b|\bglobalThis\b|\bset(Timeout|Interval|Immediate)\b|\bfetch\(/,
  }
  /** What can be imported for its value without doing anything: schemas, and functions of their arguments. */
  const harmless = ['zod', 'node:zlib']

  test('there are pure files', () => {
    expect(pureSources.length).toBeGreaterThan(20)
  })

  test.each(Object.entries(impure))('no pure file %s', (_, pattern) => {
    expect(pureSources.filter(({ bare }) => pattern.test(bare)).map(({ path }) => path)).toEqual([])
  })

  test('no pure file imports what does something', () => {
    const violations = pureSources.flatMap((source) =>
      importsOf(source)
        .filter(
          ({ specifier, typeOnly }) =>
            !typeOnly && !specifier.startsWith('.') && !harmless.includes(specifier),
        )
        .map(({ specifier }) => `${source.path} imports ${specifier}`),
    )
    expect(describeAll(violations)).toEqual([])
  })
})

describe('names', () => {
  test('files and folders are in kebab-case', () => {
    const migrations = filesUnder('migrations')
    expect(
      migrations.filter((path) => !/^migrations\/\d{4}_[a-z0-9]+(_[a-z0-9]+)*\.sql$/.test(path)),
    ).toEqual([])
    const violations = sources.filter(
      ({ path }) => !path.split('/').every((part) => /^[a-z0-9]+(-[a-z0-9]+)*(\.[a-z]+)?$/.test(part)),
    )
    expect(violations).toEqual([])
  })

  test('no drawer names: each hides a missing noun', () => {
    const drawer = /(^|[-/.])(utils?|helpers?|common|misc|managers?|services?)([-/.]|$)/
    expect(sources.map(({ path }) => path).filter((path) => drawer.test(path))).toEqual([])
  })
})

describe('what must not stand in the source', () => {
  const unwanted: Record<string, RegExp> = {
    'a note to self': /\b(TODO|FIXME|XXX|HACK)\b/,
    'a duration measured by the time of day, which may be set':
      /Date\.now\(\)\s*[<>]|\b(?:deadline|end|until|started)\w* = Date\.now\(\)/,
    'output past the logger': /\bconsole\.(log|debug|info|warn|error)\b/,
  }

  test.each(Object.entries(unwanted))('%s', (what, pattern) => {
    const where = what === 'a note to self' ? 'text' : 'bare'
    expect(sources.filter((source) => pattern.test(source[where])).map(({ path }) => path)).toEqual([])
  })

  test('paths of a machine, or hosts of a package registry', () => {
    const documents = [
      'package.json',
      'README.md',
      'docker-compose.yml',
      ...filesUnder('migrations'),
      ...filesUnder('.ci'),
    ]
    const machinePath = /(^|[\s'"`(=:])\/(home|root|work|Users|mnt|tmp|usr\/local|private)\//m
    const registryHost = new RegExp(
      [
        'registry\\.[a-z0-9-]+\\.[a-z]{2,}',
        'artifactory',
        'verdaccio',
        'jfrog',
        'npmmirror',
        'pypi\\.org',
      ].join('|'),
      'i',
    )
    const found = [...sources.map(({ path }) => path), ...documents].filter((path) => {
      let text: string
      try {
        text = readFileSync(join(root, path), 'utf8')
      } catch {
        return false
      }
      return machinePath.test(text) || registryHost.test(text)
    })
    expect(found).toEqual([])
  })
})

describe('the error codes', () => {
  const readme = (): string => readFileSync(join(root, 'README.md'), 'utf8')

  test('README and catalogue list the same codes with the same statuses', () => {
    const listed = [...readme().matchAll(/^\|\s*`([A-Z]+_\d{3})`\s*\|\s*(\d{3})(?:, \d{3})*\s*\|/gm)].map(
      ([, code, status]) => `${code} ${status}`,
    )
    const catalogued = Object.entries(errorCatalogue).map(([code, { status }]) => `${code} ${status}`)
    expect(listed.sort()).toEqual(catalogued.sort())
  })

  test('README speaks of no code that does not exist', () => {
    const named = new Set([...readme().matchAll(/\b[A-Z]{2,}_\d{3}\b/g)].map(([code]) => code))
    expect([...named].filter((code) => !Object.hasOwn(errorCatalogue, code))).toEqual([])
  })

  test('every code in the source is in the catalogue, and every code of the catalogue is used', () => {
    const used = new Set(
      sources.flatMap(({ code }) =>
        [...code.matchAll(/'([A-Z]{2,}_\d{3})'/g)].map(([, found]) => found ?? ''),
      ),
    )
    expect([...used].filter((code) => !Object.hasOwn(errorCatalogue, code))).toEqual([])
    expect(Object.keys(errorCatalogue).filter((code) => !used.has(code))).toEqual([])
  })
})
