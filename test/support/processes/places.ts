/** Several API processes of one installation on one database, which they reach through a network that can fail. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Service, type ServiceProcess, startService, startWorker } from '../service.ts'
import { startTcpProxy, type TcpProxy } from '../tcp-proxy.ts'

/** Times of `performance.now()`. */
export type Window = { readonly fromMs: number; readonly toMs: number }

/** An address that callers use. One process at a time serves it. */
export type Place = {
  readonly number: number
  /** Null while no process answers there. */
  url: string | null
  /** The number of processes that have served this address. */
  run: number
  pid: number
  /** The times when no answers are expected, because the process was killed, drained, frozen or starting. */
  readonly down: Window[]
  service: Service | null
}

export type Figures = {
  readonly conflicts: number
}

export type LogLine = { readonly level: number; readonly message: string; readonly text: string }

export type Installation = {
  readonly places: readonly Place[]
  /** The environment of all processes. */
  readonly environment: Readonly<Record<string, string>>
  readonly network: TcpProxy
  readonly dataDir: string
  start(place: Place): Promise<void>
  kill(place: Place): Promise<void>
  /** Ends the process with SIGTERM while callers still send calls to it, as before a load balancer notices. Resolves with the exit code. */
  drain(place: Place): Promise<number | string>
  freeze(place: Place): void
  thaw(place: Place): void
  /** Undoes all faults. */
  heal(): Promise<void>
  /** Whether this run of the process has ended. */
  hasEnded(number: number, run: number): boolean
  figures(): Promise<Figures>
  /** The log lines that the processes wrote since the last call. */
  logged(): LogLine[]
  close(): Promise<void>
}

type Options = {
  readonly count: number
  readonly databaseUrl: string
  readonly variables: Readonly<Record<string, string>>
}

export const openInstallation = async ({ count, databaseUrl, variables }: Options): Promise<Installation> => {
  const through = new URL(databaseUrl)
  const network = await startTcpProxy({ host: through.hostname, port: Number(through.port) })
  through.host = `127.0.0.1:${network.port}`
  const dataDir = await mkdtemp(join(tmpdir(), 'several-processes-'))
  const environment = { ...variables, DATABASE_URL: through.href, DATA_DIR: dataDir, LOG_LEVEL: 'info' }
  const places = Array.from({ length: count }, (_, number): Place => {
    return { number, url: null, run: 0, pid: 0, down: [], service: null }
  })
  const everyone: { readonly process: ServiceProcess; read: number }[] = []
  const ended: Figures[] = []
  const worker = startWorker({ ...environment, ROLES: 'projector,jobs', METRICS_PORT: '0' })
  everyone.push({ process: worker, read: 0 })
  const running = (): Service[] => places.flatMap(({ service }) => service ?? [])

  const start = async (place: Place): Promise<void> => {
    place.service = await startService({ ...environment, ROLES: 'api', METRICS_PORT: '0' })
    everyone.push({ process: place.service, read: 0 })
    place.pid = place.service.child.pid ?? 0
    place.run++
    place.url = place.service.apiUrl
    isUp(place)
  }
  const end = async (place: Place, signal: 'SIGKILL' | 'SIGTERM'): Promise<number | string> => {
    const { service } = place
    if (service === null) throw new Error(`no process at place ${place.number}`)
    ended.push(await figuresOf(service))
    place.down.push({ fromMs: performance.now(), toMs: Number.POSITIVE_INFINITY })
    const code = await service.end(signal)
    place.url = null
    place.service = null
    return code
  }
  const thaw = (place: Place): void => {
    place.service?.child.kill('SIGCONT')
    isUp(place)
  }

  return {
    places,
    environment,
    network,
    dataDir,
    start,
    thaw,
    kill: async (place) => void (await end(place, 'SIGKILL')),
    drain: (place) => end(place, 'SIGTERM'),
    freeze: (place) => {
      place.down.push({ fromMs: performance.now(), toMs: Number.POSITIVE_INFINITY })
      place.service?.child.kill('SIGSTOP')
    },
    heal: async () => {
      network.thaw()
      for (const place of places) if (place.service !== null) thaw(place)
      await Promise.all(places.filter(({ service }) => service === null).map(start))
    },
    hasEnded: (number, run) => places[number]?.run !== run || places[number]?.service === null,
    figures: async () => {
      const all = [...ended, ...(await Promise.all(running().map(figuresOf)))]
      const sum = (name: keyof Figures): number => all.reduce((total, one) => total + one[name], 0)
      return {
        conflicts: sum('conflicts'),
      }
    },
    logged: () =>
      everyone.flatMap((one) => {
        const output = one.process.output()
        const news = output.slice(one.read, output.lastIndexOf('\n') + 1)
        one.read += news.length
        return news.split('\n').flatMap(lineOf)
      }),
    close: async () => {
      network.thaw()
      for (const place of places) thaw(place)
      await Promise.all([...running(), worker].map((one) => one.end('SIGTERM')))
      await network.close()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}

const isUp = ({ down }: Place): void => {
  const last = down.pop()
  if (last !== undefined) down.push({ ...last, toMs: Math.min(last.toMs, performance.now()) })
}

const figuresOf = async ({ metricsUrl, child, output }: Service): Promise<Figures> => {
  const response = await fetch(`${metricsUrl}/metrics`, { signal: AbortSignal.timeout(5_000) }).catch(
    (cause: unknown) => {
      // This suite looks for processes that end unexpectedly. Their last output shows the reason.
      const { exitCode, signalCode } = child
      throw new Error(
        `no metrics of a process (${exitCode ?? signalCode ?? 'running'}):\n${output().slice(-4_000)}`,
        { cause },
      )
    },
  )
  const text = await response.text()
  const sample = (name: string): number => {
    const line = text.split('\n').find((one) => one.startsWith(`${name} `))
    return Number(line?.slice(name.length) ?? 0)
  }
  return {
    conflicts: sample('enrichment_ledger_conflicts_total'),
  }
}

/** Lines that are not JSON are not log lines, but the announcement or Node.js output from a crash. */
const lineOf = (text: string): LogLine[] => {
  if (!text.startsWith('{')) return []
  const { level, msg } = JSON.parse(text) as { level: number; msg: string }
  return [{ level, message: msg, text }]
}
