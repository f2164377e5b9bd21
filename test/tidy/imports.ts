import { describe, expect, test } from 'vitest'
import { folderOf, importsOf, sources, targetOf } from './source.ts'

/** Which folder may import which. */

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
    concurrency: [],
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
    const room = folderOf(target)
    if (room === from || from === 'top') return true
    // What waits may have a deadline; a pure file never waits.
    if (room === 'concurrency') return !pure.includes(from)
    const rooms = allowed[from.startsWith('capabilities/') ? 'capability' : from] ?? []
    if (rooms.includes(room) || (rooms.includes('capability') && room.startsWith('capabilities/')))
      return true
    return rooms.some((one) => one.includes('.') && target.endsWith(`/${one}`))
  }

  test('every room is known', () => {
    const rooms = new Set(sources.map(({ path }) => folderOf(path)))
    expect(
      [...rooms].filter(
        (room) => room !== 'top' && !room.startsWith('capabilities/') && allowed[room] === undefined,
      ),
    ).toEqual([])
  })

  test('no room imports a room it may not know', () => {
    const violations = sources.flatMap((source) =>
      importsOf(source.code)
        .filter(({ specifier }) => specifier.startsWith('.'))
        .map((one) => targetOf(source.path, one))
        .filter((target) => !mayImport(folderOf(source.path), target))
        .map((target) => `${source.path} imports ${target}`),
    )
    expect(describeAll(violations)).toEqual([])
  })

  test('events know zod and nothing else from outside; the other pure rooms know no package at all', () => {
    const violations = sources.flatMap((source) => {
      const room = folderOf(source.path)
      if (!pure.includes(room)) return []
      return importsOf(source.code)
        .filter(({ specifier }) => !specifier.startsWith('.') && !specifier.startsWith('node:'))
        .filter(({ specifier }) => room !== 'events' || specifier !== 'zod')
        .map(({ specifier }) => `${source.path} imports ${specifier}`)
    })
    expect(describeAll(violations)).toEqual([])
  })

  test('imports are relative paths of files that exist, or packages', () => {
    const known = new Set(sources.map(({ path }) => path))
    const violations = sources.flatMap((source) =>
      importsOf(source.code)
        .filter(({ specifier }) => specifier.startsWith('.') && !specifier.endsWith('.json'))
        .map((one) => targetOf(source.path, one))
        .filter((target) => !known.has(target))
        .map((target) => `${source.path} imports ${target}`),
    )
    expect(describeAll(violations)).toEqual([])
  })
})
