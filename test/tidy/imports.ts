import { describe, expect, test } from 'vitest'
import { expectNone } from './none.ts'
import { allPaths, folderOf, importsOf, sources, targetOf } from './source.ts'

/** The folders that each folder may import. A folder may always import itself. */

const pure = ['events', 'billing', 'keys', 'projections']
const engine = ['event-log', 'ledger', 'guard', 'projector']
const belowFoundation = [...pure, ...engine, 'config']
/** The folders that do not belong to a capability. */
const outer = [
  ...belowFoundation,
  'call',
  'capabilities',
  'egress',
  'foundation',
  'administration',
  'cli',
  'dashboard',
  'documentation',
  'jobs',
  'metrics',
  'start',
  'webhooks',
]

/** An entry without a slash is a folder, the list of capabilities (`capabilities`), or `config`. An entry with a slash is a single file. */
const allowed: Readonly<Record<string, readonly string[]>> = {
  events: [],
  billing: ['events'],
  keys: ['events'],
  projections: ['events'],
  'event-log': pure,
  ledger: [...pure, 'event-log'],
  guard: [...pure, 'event-log'],
  projector: [...pure, 'event-log', 'tracing'],
  // `call` needs the type of the parts that capabilities get from egress.
  call: [...pure, ...engine, 'tracing', 'src/egress/outside.ts'],
  // The health checks of a process use the checks in `administration`.
  metrics: [...pure, ...engine, 'call', 'administration'],
  concurrency: [],
  tracing: [],
  egress: [],
  // A capability answers calls, reads projections, follows the event log, hashes personal data, and sends requests to outside hosts.
  capability: [
    'call',
    'egress',
    'events',
    'projections',
    'src/guard/secrets/secrets.ts',
    ...[
      'port',
      'append-chained',
      'append-next',
      'append-until-known',
      'follow',
      'read-stream',
      'stored-event',
      'event-id',
    ].map((name) => `src/event-log/${name}.ts`),
    // These files declare commands and queries about data that a capability stores.
    ...['declare', 'fields', 'input', 'pixel/pixel'].map((name) => `src/administration/${name}.ts`),
  ],
  webhooks: [...pure, ...engine, 'egress'],
  documentation: [],
  capabilities: ['call', 'events', 'every capability', 'src/administration/declare.ts'],
  foundation: belowFoundation,
  // A backup names the release in package.json.
  administration: [
    ...belowFoundation,
    'foundation',
    'webhooks',
    'src/egress/guard.ts',
    'src/egress/post.ts',
    'src/call/capability.ts',
    'src/call/data-source.ts',
    'src/call/json-text.ts',
    'src/call/request-id.ts',
    'package.json',
  ],
  cli: [...outer, 'package.json'],
  // `start` opens the dashboard, which also works without the command line.
  dashboard: outer.filter((name) => name !== 'start' && name !== 'cli'),
  'admin-api': [
    ...outer.filter((name) => name !== 'start' && name !== 'cli' && name !== 'dashboard'),
    'package.json',
  ],
  jobs: outer,
  start: [...outer, 'admin-api', 'package.json'],
  main: outer,
  config: ['config'],
}

/** The only file in administration that may import the capabilities. */
const joint = 'src/administration/capabilities.ts'

const partOf = (path: string): string => {
  const folder = folderOf(path)
  if (path === 'src/config.ts') return 'config'
  if (folder === 'top') return path === 'src/main.ts' || path === 'src/cli.ts' ? 'main' : 'loose'
  return folder.startsWith('capabilities/') ? 'capability' : folder
}

const mayImport = (from: string, target: string): boolean => {
  if (folderOf(from) === folderOf(target) && folderOf(from) !== 'top') return true
  const list = [...(allowed[partOf(from)] ?? []), ...(from === joint ? ['capabilities'] : [])]
  const part = partOf(target)
  // Code that waits may have a deadline, but a pure file never waits.
  if (part === 'concurrency') return !pure.includes(partOf(from))
  if (part === 'capability') return list.includes('every capability')
  return list.includes(part) || list.includes(target)
}

describe('imports between folders', () => {
  test('every folder is in the table', () => {
    const parts = new Set(sources.map(({ path }) => partOf(path)))
    expect([...parts].filter((part) => part !== 'loose' && allowed[part] === undefined)).toEqual([])
  })

  test('no file is directly in src', () => {
    const known = ['src/main.ts', 'src/cli.ts', 'src/config.ts']
    const loose = allPaths.filter((path) => /^src\/[^/]+$/.test(path) && !known.includes(path))
    expectNone('files directly in src', new Map(loose.map((path) => [path, 1])))
  })

  test('no folder imports one that it may not', () => {
    expectNone(
      'imports that a folder may not make',
      new Map(
        sources
          .map(({ path, code }) => {
            const targets = importsOf(code)
              .filter(({ specifier }) => specifier.startsWith('.'))
              .map((one) => targetOf(path, one))
            return [path, [...new Set(targets)].filter((target) => !mayImport(path, target))] as const
          })
          .filter(([, targets]) => targets.length > 0),
      ),
    )
  })

  test('imports are relative paths of files that exist, or packages', () => {
    const known = new Set([...allPaths, 'package.json'])
    const missing = sources.flatMap(({ path, code }) =>
      importsOf(code)
        .filter(({ specifier }) => specifier.startsWith('.'))
        .map((one) => targetOf(path, one))
        .filter((target) => !known.has(target))
        .map((target) => `${path} imports ${target}`),
    )
    expect(missing).toEqual([])
  })
})
