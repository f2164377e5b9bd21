import { ulid } from 'ulid'
import { defaultKeyLimits, issueKey } from '../../src/administration/api-keys.ts'
import { parseConfig } from '../../src/config.ts'
import { startApp } from '../../src/start/app.ts'
import { withFoundation } from './database.ts'
import { writeHistory } from './ledger-history.ts'
import { type BenchOptions, figureRow, median, type Row, ratioRow } from './row.ts'

/**
 * Calls with an Idempotency-Key while no projector runs and the ledger is far ahead of its read models: they must cost what
 * calls without one cost, and a little more.
 */

const eventsBehind = 150_000
const atOnce = 16
const callsPerKind = 50

export const keyed = ({ begin, tell }: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation, dataDir, logger }) => {
    const organizationId = `org_${ulid()}`
    await writeHistory(foundation.url, [{ organizationId, events: eventsBehind }])
    const { apiKey } = await issueKey(foundation, {
      organizationId,
      name: 'bench',
      permissions: ['ip_lookup'],
      limits: { ...defaultKeyLimits, requests_per_minute: 1_000_000, requests_per_day: 1_000_000 },
      allowedCidrs: [],
      expiresAt: null,
      actor: 'cli',
    })
    const config = parseConfig({ DATA_DIR: dataDir, ROLES: 'api', API_PORT: '0' })
    const app = await startApp(foundation, config, logger)
    try {
      const call = async (key?: string): Promise<number> => {
        const startedAt = performance.now()
        const answer = await fetch(`${app.apiUrl}/v1/ip/lookup`, {
          method: 'POST',
          headers: {
            'x-api-key': apiKey,
            'content-type': 'application/json',
            ...(key === undefined ? {} : { 'idempotency-key': key }),
          },
          body: '{"ip":"81.2.69.142"}',
        })
        const text = await answer.text()
        if (answer.status !== 200) throw new Error(`${answer.status}: ${text}`)
        return performance.now() - startedAt
      }
      tell(`keyed: a process’s first call, which loads the account, takes ${(await call()).toFixed(0)} ms`)
      begin()
      const first = await call('first')
      const together = await Promise.all(Array.from({ length: atOnce }, (_, n) => call(`together-${n}`)))
      const without: number[] = []
      const under: number[] = []
      for (let n = 0; n < callsPerKind; n++) {
        without.push(await call())
        under.push(await call(`key-${n}`))
      }
      tell(
        `keyed: ${eventsBehind} events behind: the first under a key ${first.toFixed(1)} ms, the last of ${atOnce} at once ${Math.max(...together).toFixed(1)} ms`,
      )
      return [
        figureRow('first call under a key, 150,000 events behind', first, 'ms', null),
        figureRow('16 first calls under keys at once, the last', Math.max(...together), 'ms', null),
        ratioRow('call under a key p50, 150,000 events behind, against one without', {
          measured: median(under),
          against: median(without),
          unit: 'ms',
          bound: { most: 5 },
        }),
      ]
    } finally {
      await app.close()
    }
  })
