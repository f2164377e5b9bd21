import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseConfig } from '../../src/config.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { openPartner, type Partner, unlimited } from '../support/partners.ts'
import { lookup, type Service, startChild, startService } from '../support/service.ts'
import { processorMsOf, processorMsOfTree } from './processor-time.ts'
import { logger, openStore, type Store } from './store.ts'

/** The real service as a child process, with an organization and a key that are practically unlimited. */

const bare = fileURLToPath(new URL('bare-route.ts', import.meta.url))

export type BareRoute = { readonly port: number; readonly pid: number; stop(): Promise<void> }

export type MeasuredService = {
  readonly port: number
  readonly pid: number
  readonly store: Store
  readonly foundation: Foundation
  readonly organizationId: string
  readonly apiKey: string
  /** The processor time so far of the service and of all PostgreSQL processes, in milliseconds. */
  processorMs(): { service: number; postgres: number }
  stop(): Promise<void>
}

const { scripts }: { scripts: { start: string } } = JSON.parse(
  readFileSync(new URL('../../package.json', import.meta.url), 'utf8'),
)
const [, ...startArguments] = scripts.start.slice(scripts.start.indexOf('node --')).split(' ')

/** Starts a process of an installation, as `npm start` does. */
export const startOn = (
  { environment }: Store,
  variables: Readonly<Record<string, string>>,
): Promise<Service> =>
  startService(
    { METRICS_PORT: '0', ...environment, ...variables },
    { command: [process.execPath, ...startArguments] },
  )

export const startMeasured = async ({ roles }: { readonly roles: string }): Promise<MeasuredService> => {
  const store = await openStore()
  const service = await startOn(store, { ROLES: roles })
  const foundation = await openFoundation(parseConfig(store.environment), { logger })
  const { organizationId, apiKey } = await openAccount(foundation)
  const { status } = await lookup(service.apiUrl, apiKey, '8.8.8.8')
  if (status !== 200) throw new Error(`the first call was answered with ${status}`)
  const pid = service.child.pid ?? 0
  return {
    pid,
    store,
    foundation,
    organizationId,
    apiKey,
    port: Number(new URL(service.apiUrl).port),
    processorMs: () => ({ service: processorMsOf(pid), postgres: processorMsOfTree(store.postgresPid) }),
    stop: async () => {
      await foundation.close()
      await service.end('SIGTERM')
      await store.close()
    },
  }
}

export const startBareRoute = async ({ bareUlid }: { bareUlid: boolean }): Promise<BareRoute> => {
  const { child, printed, end } = startChild([process.execPath, bare, ...(bareUlid ? ['--bare-ulid'] : [])], {
    env: { PATH: process.env.PATH },
  })
  const [, port = ''] = await printed(/^API +http:\S+:(\d+)$/m)
  return { port: Number(port), pid: child.pid ?? 0, stop: async () => void (await end('SIGTERM')) }
}

/** An organization with more credits, and a key with higher limits, than any benchmark uses. */
export const openAccount = (foundation: Foundation): Promise<Partner> =>
  openPartner(foundation, { credits: '1000000000', limits: unlimited })
