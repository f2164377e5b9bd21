import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { Session } from 'node:inspector/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onOne, openLoadGenerator } from './load.ts'
import { processorMsOf } from './processor-time.ts'
import { type MeasuredService, startMeasured } from './service.ts'

/** Shows how the service's main thread spends its time under load: `node test/bench/run.ts --profile call`. */

const connections = 64
const warmUpSeconds = 3
const functionsShown = 30
const sourcesShown = 25

type CpuProfile = {
  readonly nodes: readonly {
    readonly id: number
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number }
    readonly children?: readonly number[] | undefined
  }[]
  /** Microseconds on the monotonic clock. */
  readonly startTime: number
  readonly samples: readonly number[]
  readonly timeDeltas: readonly number[]
}

export const profileCall = async ({
  roles,
  seconds,
}: {
  roles: string
  seconds: number
}): Promise<string> => {
  const directory = await mkdtemp(join(tmpdir(), 'bench-profile-'))
  const generator = openLoadGenerator()
  try {
    const service = await startMeasured({ roles, nodeArgs: ['--cpu-prof', `--cpu-prof-dir=${directory}`] })
    const at = { ...onOne(service), connections, rate: null }
    let window = { fromUs: 0, toUs: 0 }
    let perSecond = 0
    let postgres = ''
    try {
      await generator.run({ ...at, seconds: warmUpSeconds, seed: 1 })
      const before = await backends(service)
      const fromUs = monotonicUs()
      perSecond = (await generator.run({ ...at, seconds, seed: 2 })).perSecond
      window = { fromUs, toUs: monotonicUs() }
      const after = await backends(service)
      const elapsedMs = (window.toUs - fromUs) / 1_000
      postgres = [...after.entries()]
        .map(([name, ms]) => ({ name, share: ((ms - (before.get(name) ?? 0)) / elapsedMs) * 100 }))
        .sort((a, b) => b.share - a.share)
        .map(({ name, share }) => `${share.toFixed(1).padStart(6)} %  ${name}`)
        .join('\n')
    } finally {
      await service.stop()
    }
    const [name] = (await readdir(directory)).filter((file) => file.endsWith('.cpuprofile'))
    const profile = JSON.parse(await readFile(join(directory, name ?? ''), 'utf8')) as CpuProfile
    return `ROLES=${roles}, ${Math.round(perSecond)} calls/s under the profiler\n\n${summaryOf(profile, window)}\n\nPostgreSQL processes, share of one core\n${postgres}`
  } finally {
    await generator.stop()
    await rm(directory, { recursive: true, force: true })
  }
}

/** The processor time so far of each kind of PostgreSQL process, in milliseconds. */
const backends = async ({ foundation }: MeasuredService): Promise<Map<string, number>> => {
  const { rows } = await foundation.pool.query<{ pid: number; name: string }>(
    `select pid, backend_type || ' ' || coalesce(application_name, '') as name from pg_stat_activity`,
  )
  const found = new Map<string, number>()
  for (const { pid, name } of rows) found.set(name, (found.get(name) ?? 0) + processorMsOf(pid))
  return found
}

/** Shows how this process spends its time in a scenario that runs inside it. */
export const profileHere = async (scenario: (begin: () => void) => Promise<unknown>): Promise<string> => {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.setSamplingInterval', { interval: 500 })
  await session.post('Profiler.start')
  let fromUs = monotonicUs()
  await scenario(() => {
    fromUs = monotonicUs()
  })
  const toUs = monotonicUs()
  const { profile } = await session.post('Profiler.stop')
  session.disconnect()
  return summaryOf(
    { ...profile, samples: profile.samples ?? [], timeDeltas: profile.timeDeltas ?? [] },
    { fromUs, toUs },
  )
}

const monotonicUs = (): number => Number(process.hrtime.bigint() / 1_000n)

const summaryOf = (profile: CpuProfile, { fromUs, toUs }: { fromUs: number; toUs: number }): string => {
  const selfUs = new Map<number, number>()
  let at = profile.startTime
  let total = 0
  profile.samples.forEach((id, i) => {
    const delta = profile.timeDeltas[i] ?? 0
    at += delta
    if (at < fromUs || at > toUs) return
    selfUs.set(id, (selfUs.get(id) ?? 0) + delta)
    total += delta
  })
  const byId = new Map(profile.nodes.map((node) => [node.id, node]))
  const byFunction = new Map<string, number>()
  const bySource = new Map<string, number>()
  const inclusive = new Map<string, number>()
  for (const [id, us] of selfUs) {
    const node = byId.get(id)
    if (node === undefined) continue
    add(byFunction, nameOf(node.callFrame), us)
    add(bySource, sourceOf(node.callFrame), us)
  }
  // Only the outermost frame of a recursive function is added, so that it counts once.
  const root = profile.nodes[0]
  const walk = (id: number, open: ReadonlySet<string>): number => {
    const node = byId.get(id)
    if (node === undefined) return 0
    const name = nameOf(node.callFrame)
    const ours = /\/(src|projections)\//.test(node.callFrame.url) && !open.has(name)
    const inside = ours ? new Set([...open, name]) : open
    let us = selfUs.get(id) ?? 0
    for (const child of node.children ?? []) us += walk(child, inside)
    if (ours) add(inclusive, name, us)
    return us
  }
  if (root !== undefined) walk(root.id, new Set())
  const list = (title: string, map: ReadonlyMap<string, number>, count: number): string =>
    [
      title,
      ...[...map]
        .sort((a, b) => b[1] - a[1])
        .slice(0, count)
        .map(([name, us]) => `${((us / total) * 100).toFixed(1).padStart(6)} %  ${name}`),
    ].join('\n')
  return [
    list('self time by function', byFunction, functionsShown),
    list('self time by source', bySource, sourcesShown),
    list('time in our functions and what they call', inclusive, functionsShown),
  ].join('\n\n')
}

const add = (map: Map<string, number>, key: string, us: number): void => {
  map.set(key, (map.get(key) ?? 0) + us)
}

type Frame = CpuProfile['nodes'][number]['callFrame']

const shortOf = (url: string): string =>
  url.replace(/^.*\/node_modules\//, '').replace(/^file:\/\/.*?\/(src|projections)\//, '$1/')

const nameOf = ({ functionName, url, lineNumber }: Frame): string =>
  `${functionName === '' ? '(anonymous)' : functionName}${url === '' ? '' : `  ${shortOf(url)}:${lineNumber + 1}`}`

/** Our files are shown one by one, packages and Node's modules as a whole. */
const sourceOf = ({ functionName, url }: Frame): string => {
  if (url === '') return functionName.startsWith('(') ? functionName : 'native code'
  const short = shortOf(url)
  if (/^(src|projections)\//.test(short)) return short
  if (short.startsWith('node:')) return short
  const [scope = '', name = ''] = short.split('/')
  return scope.startsWith('@') ? `${scope}/${name}` : scope
}
