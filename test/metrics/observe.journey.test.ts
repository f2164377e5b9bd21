/**
 * The metrics that Prometheus and Grafana query (compose profile `observe`) exist in a running service, and every alarm has its
 * section in the guide. `.ci/run` tests the meaning of the rules with promtool.
 */
import { existsSync, readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { keyUsage } from '../../projections/key-usage.ts'
import { rebuild } from '../../src/administration/projections/rebuilds.ts'
import { parseConfig } from '../../src/config.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { reconcileOnward, verifyLogOnward } from '../../src/jobs/own-jobs.ts'
import { commands as commandList } from '../cli/commands.ts'
import { createPartner, eventually, type Service, startService } from '../support/service.ts'
import { groupedBy, selectorsOf } from './promql.ts'

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
const folder = 'src/metrics/observe'

type Rule = {
  readonly alert: string
  readonly expr: string
  readonly labels: { readonly severity: string }
  readonly annotations: Readonly<Record<'summary' | 'means' | 'first' | 'runbook_url', string>>
}
const { groups } = parse(read(`${folder}/alerts.yml`)) as { groups: readonly { rules: readonly Rule[] }[] }
const rules = groups.flatMap((group) => group.rules)

type Panel = {
  readonly type: string
  readonly title: string
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[]
}
const dashboard = JSON.parse(read(`${folder}/grafana/dashboards/enrichment-ledger.json`)) as {
  readonly panels: readonly Panel[]
}
const queries = dashboard.panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr, legendFormat }) => ({
    what: `panel "${title}"`,
    expr: expr.replaceAll('$__rate_interval', '1m'),
    words: legendFormat,
  })),
)
const alarms = rules.map(({ alert, expr, annotations }) => ({
  what: alert,
  expr,
  words: Object.values(annotations).join(' '),
}))

/** Prometheus's own metrics, and the labels that it adds to every series it scrapes. */
const ownMetrics = new Set(['up', 'ALERTS'])
const ownLabels = new Set(['job', 'instance', 'alertname', 'alertstate', 'severity'])

describe('the queried series', () => {
  let dataDir = ''
  let service: Service
  let byMetric: Map<string, Record<string, string>[]>

  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'observe-'))
    const environment = {
      DATA_DIR: dataDir,
      // No server listens there, so the call fails because of a dependency.
      PROFILE_PROVIDER: 'http',
      PROFILE_HTTP_URL: 'http://127.0.0.1:9/{lid}',
      EGRESS_ALLOW: '127.0.0.0/8',
    }
    service = await startService(environment)
    await daily(dataDir)
    const { apiKey } = await createPartner('20', environment)
    const post = async (path: string, body: object): Promise<number> => {
      const headers = { 'content-type': 'application/json', 'x-api-key': apiKey }
      const response = await fetch(`${service.apiUrl}${path}`, {
        method: 'POST',
        headers,
        body: JSON.stringify(body),
      })
      await response.arrayBuffer()
      return response.status
    }
    expect(await post('/v1/email/validate', { email: 'no address' })).toBe(200)
    expect(await post('/v1/profnet/profile', { id: 'ada-lovelace' })).toBe(503)
    const statuses: number[] = []
    for (let n = 0; n < 21; n++) statuses.push(await post('/v1/ip/lookup', { ip: '8.8.8.8' }))
    expect([new Set(statuses.slice(0, 20)), statuses[20]]).toEqual([new Set([200]), 402])
    // Jobs are scheduled a moment after the service answers, and rows are checked from time to time.
    byMetric = await eventually(async () => {
      const series = seriesIn(await (await fetch(`${service.metricsUrl}/metrics`)).text())
      const all = [
        'enrichment_jobs_success_age_seconds',
        'enrichment_log_verification_faults',
        'enrichment_projection_lag_seconds',
      ]
      return all.every((name) => series.has(name)) ? series : undefined
    })
  })
  afterAll(async () => {
    await service?.end('SIGTERM')
    await rm(dataDir, { recursive: true, force: true })
  })

  test.each([...alarms, ...queries])('$what: every metric exists, with these labels', ({ expr, words }) => {
    const selectors = selectorsOf(expr)
    expect(selectors.length).toBeGreaterThan(0)
    for (const { metric, matchers } of selectors) {
      if (ownMetrics.has(metric)) continue
      const series = byMetric.get(metric) ?? []
      expect([metric, series.length > 0]).toEqual([metric, true])
      const fits = series.some((labels) =>
        matchers.every(({ label, operator, value }) =>
          operator === '='
            ? labels[label] === value
            : operator === '!=' && label in labels && labels[label] !== value,
        ),
      )
      expect([metric, matchers, fits]).toEqual([metric, matchers, true])
    }
    const labels = new Set(
      selectors.flatMap(({ metric }) => (byMetric.get(metric) ?? []).flatMap(Object.keys)),
    )
    const named = [
      ...groupedBy(expr),
      ...[...words.matchAll(/\{\{ ?\$labels\.(\w+)|\{\{(\w+)\}\}/g)].map(
        ([, one, other]) => one ?? other ?? '',
      ),
    ]
    expect(named.filter((label) => !labels.has(label) && !ownLabels.has(label))).toEqual([])
  })
})

/** Does the service's daily work, and an operator's occasional work. */
const daily = async (dataDir: string): Promise<void> => {
  const logger = pino({ level: 'silent' })
  const foundation = await openFoundation(parseConfig({ DATA_DIR: dataDir }), { logger })
  try {
    await foundation.checkpoints.make()
    expect(await verifyLogOnward(foundation, logger)).toBe(0)
    expect(await reconcileOnward(foundation, logger)).toBe(0)
    const { switched } = await rebuild(foundation, {
      projections: [keyUsage],
      reason: 'to see its figures',
      actor: 'system',
      logger,
      mayForget: async () => false,
      onProgress: () => undefined,
    })
    expect(switched).toBe(true)
  } finally {
    await foundation.close()
  }
}

const seriesIn = (text: string): Map<string, Record<string, string>[]> => {
  const series = new Map<string, Record<string, string>[]>()
  for (const [, metric = '', inner = ''] of text.matchAll(/^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$/gm)) {
    const labels = Object.fromEntries(
      [...inner.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, label = '', value = '']) => [label, value]),
    )
    series.set(metric, [...(series.get(metric) ?? []), labels])
  }
  return series
}

describe('an alarm', () => {
  const guide = read('src/guides/alarms.md')

  test('has its section in the guide, and each section has its alarm', () => {
    const headings = [...guide.matchAll(/^## (.+)$/gm)].map(([, heading]) => heading)
    expect(headings.sort()).toEqual(rules.map(({ alert }) => alert).sort())
  })

  test('is tested by promtool, and no other rule is', () => {
    const cases = parse(read(`${folder}/alerts.test.yml`)) as {
      tests: readonly { promql_expr_test: readonly { exp_samples?: readonly { labels: string }[] }[] }[]
    }
    const fired = cases.tests
      .flatMap((one) => one.promql_expr_test)
      .flatMap(({ exp_samples = [] }) =>
        exp_samples.map(({ labels }) => /alertname="(\w+)"/.exec(labels)?.[1]),
      )
    expect([...new Set(fired)].sort()).toEqual(rules.map(({ alert }) => alert).sort())
  })

  test('names only existing commands', () => {
    const commands = new Set(
      [...commandList.map(({ name }) => name)].flatMap((name) => [name, name.split(' ')[0] ?? '']),
    )
    const named = rules.flatMap(({ annotations }) =>
      [...annotations.first.matchAll(/"([a-z-]+(?: [a-z]+(?:-[a-z]+)*)?)(?: --[a-z]+)?"/g)].map(
        ([, name = '']) => name,
      ),
    )
    expect(named.length).toBeGreaterThan(3)
    expect(named.filter((name) => !commands.has(name))).toEqual([])
  })
})

test('Prometheus scrapes every process of compose, and reads these rules', () => {
  const { scrape_configs, rule_files } = parse(read(`${folder}/prometheus.yml`)) as {
    rule_files: readonly string[]
    scrape_configs: readonly {
      job_name: string
      dns_sd_configs: readonly { names: readonly string[]; port: number }[]
    }[]
  }
  expect(rule_files).toEqual(['alerts.yml'])
  const asked = scrape_configs.map(({ job_name, dns_sd_configs: [found] }) => [
    job_name,
    found?.names,
    found?.port,
  ])
  expect(asked).toEqual(['api', 'dashboard', 'worker'].map((name) => [name, [name], 9_464]))
  const { services } = parse(read('docker-compose.yml'), { merge: true }) as {
    services: Record<string, { profiles?: readonly string[]; volumes?: readonly string[] }>
  }
  const mounts = ['prometheus', 'grafana'].flatMap((name) => {
    expect(services[name]?.profiles).toEqual(['observe'])
    return (services[name]?.volumes ?? []).map((volume) => volume.split(':')[0] ?? '')
  })
  for (const mount of mounts.filter((path) => path.startsWith('./')))
    expect([mount, existsSync(new URL(`../../${mount}`, import.meta.url))]).toEqual([mount, true])
})
