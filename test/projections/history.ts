/**
 * The base of the projection tests: a database, a long and valid history that the service's own deciders write to the event log,
 * and rows to compare.
 */
import { Writable } from 'node:stream'
import pg from 'pg'
import { type Logger, pino } from 'pino'
import { projections } from '../../projections/index.ts'
import type { Projection, TableName } from '../../projections/projection.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { type EventLog, logStart, type RecordedEvent } from '../../src/event-log/port.ts'
import { openPostgresEventLog } from '../../src/event-log/postgres/index.ts'
import { encodeEvent, eventIdOf, uuidV5 } from '../../src/event-log/stored-event.ts'
import type { CallFacts } from '../../src/events/calls.ts'
import type { DomainEvent } from '../../src/events/catalogue.ts'
import { keyStream, priceBookStream, profileStream } from '../../src/events/streams.ts'
import { createSecrets } from '../../src/guard/secrets/secrets.ts'
import { CommandRefused, type LedgerCommand } from '../../src/ledger/command.ts'
import { decideCommand, isRefusal } from '../../src/ledger/decide.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/ledger.ts'
import { type Checkpoint, readCheckpoints } from '../../src/projector/checkpoints.ts'
import type { HeldWork } from '../../src/projector/held-work.ts'
import { type Rebuilt, rebuildProjections } from '../../src/projector/rebuild.ts'
import { createProjector } from '../../src/projector/run.ts'
import { liveTable } from '../../src/projector/tables.ts'
import { type Verdict, verifyProjections } from '../../src/projector/verify.ts'
import { seededRandom } from '../ip-lookup/seeded-random.ts'
import { preparedDatabase } from '../support/postgres.ts'

export const organizationIds = ['1', '2', '3'].map((digit) => `org_01K9PPPPPPPPPPPPPPPPPPPPP${digit}`)
const keyIds = ['a', 'b', 'c', 'd', 'e', 'f'].map((letter) => `K9abcdefghijklm${letter}`)
const startMs = Date.parse('2026-02-27T20:00:00.000Z')
export const projectionNames = projections.map(({ name }) => name)
const book = priceBookOf(defaultPriceBook)
const hmac = 'A'.repeat(43)
/** The seal for the rows in these tests. */
export const seal = createSecrets('s'.repeat(40)).rowSeal

export type House = {
  readonly url: string
  readonly pool: pg.Pool
  readonly eventLog: EventLog
  /** A projector that runs until it is stopped or the house closes, and its log messages. */
  start(options?: { owner?: string; only?: readonly Projection[]; eventLog?: EventLog }): {
    readonly messages: readonly string[]
    stop(): Promise<void>
  }
  rebuild(projection: Projection): Promise<Rebuilt>
  verify(projection: Projection): Promise<Verdict>
  /** Verifies several projections in one pass over the log. */
  verifyAll(only?: readonly Projection[]): Promise<Verdict[]>
  checkpointOf(projection: Projection): Promise<Checkpoint>
  /** The rows in the projection's live tables. */
  live(projection: Projection): Promise<Record<string, string[]>>
  /** Opens the event log as in a new process, because a process notices if the log loses what it has read. */
  restart(): Promise<void>
  close(): Promise<void>
}

const silent = pino({ level: 'silent' })

/** Shorter waits than the projector's defaults. */
const brief = { leaseRetryMs: 50, failurePauseMs: 25, batchIntervalMs: 10, revivalCheckMs: 100 }

/** A logger that collects its messages. */
const listening = (): { logger: Logger; messages: string[] } => {
  const messages: string[] = []
  const sink = new Writable({
    write: (line: Buffer, _, done) => {
      const { msg, err } = JSON.parse(line.toString()) as { msg: string; err?: { message: string } }
      messages.push(err === undefined ? msg : `${msg}: ${err.message}`)
      done()
    },
  })
  return { logger: pino({ level: 'info' }, sink), messages }
}

export const openHouse = async (database = preparedDatabase): Promise<House> => {
  const { url, drop } = await database()
  const pool = new pg.Pool({ connectionString: url, max: 6 })
  pool.on('error', () => undefined)
  let eventLog = openPostgresEventLog({ url, logger: silent })
  const running = new Set<HeldWork>()
  return {
    url,
    pool,
    get eventLog() {
      return eventLog
    },
    restart: async () => {
      await eventLog.close()
      eventLog = openPostgresEventLog({ url, logger: silent })
    },
    start: ({ owner = `owner-${running.size}`, only = projections, eventLog: from = eventLog } = {}) => {
      const { logger, messages } = listening()
      const projector = createProjector({
        url,
        eventLog: from,
        projections: only,
        seal,
        logger,
        owner,
        waits: brief,
      })
      running.add(projector)
      void projector.run()
      return {
        messages,
        stop: async () => {
          await projector.stop()
          running.delete(projector)
        },
      }
    },
    rebuild: (projection) => rebuildProjections({ url, eventLog, seal, projections: [projection] }),
    verifyAll: (only = projections) => verifyProjections({ url, eventLog, seal, projections: only }),
    verify: async (projection) => {
      const [verdict] = await verifyProjections({ url, eventLog, seal, projections: [projection] })
      if (verdict === undefined) throw new Error(`${projection.name} was not compared`)
      return verdict
    },
    checkpointOf: async ({ name }) => {
      const found = (await readCheckpoints(pool)).find((one) => one.name === name)
      if (found === undefined) throw new Error(`${name} has no checkpoint`)
      return found
    },
    live: (projection) => rowsOf(pool, projection, liveTable(projection)),
    close: async () => {
      await Promise.all([...running].map((one) => one.stop()))
      await eventLog.close()
      await pool.end()
      await drop()
    },
  }
}

/** Waits for a condition. The error names the condition if it is not met in time. */
export const until = async (
  what: string,
  met: () => Promise<boolean> | boolean,
  withinMs = 30_000,
): Promise<void> => {
  for (const give = performance.now() + withinMs; ; ) {
    if (await met()) return
    if (performance.now() > give) throw new Error(`timed out waiting until ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 15))
  }
}

/** Waits until every named projection is live and has reached the head. */
export const untilProjected = async (
  { pool, eventLog }: House,
  names: readonly string[] = projectionNames,
): Promise<void> => {
  await until(`${names.join(', ')} have reached the head`, async () => {
    const head = await eventLog.head()
    const standing = await readCheckpoints(pool).catch(() => [])
    return names.every((name) =>
      standing.some((one) => one.name === name && one.state === 'live' && one.position === head),
    )
  })
}

/** Every event in the log. */
export const wholeLog = async (eventLog: EventLog): Promise<RecordedEvent[]> => {
  const events: RecordedEvent[] = []
  const done = new AbortController()
  for await (const item of eventLog.subscribe({ after: logStart, prefixes: [], signal: done.signal })) {
    if (item.kind === 'events') events.push(...item.events)
    if (item.kind === 'caught-up') break
  }
  done.abort()
  return events
}

/** A projection's rows as texts, in an order that depends only on the rows. */
export const rowsOf = async (
  client: pg.Pool | pg.ClientBase,
  projection: Projection,
  table: TableName,
): Promise<Record<string, string[]>> => {
  const found: Record<string, string[]> = {}
  for (const { name } of projection.tables) {
    const { rows } = await client.query<{ row: string }>(
      `select t::text as row from ${table(name)} t order by 1`,
    )
    found[name] = rows.map(({ row }) => row)
  }
  return found
}

/** Appends the event of a key, a price book or an operator, or an invalid event, to the end of the stream. */
export const appendTo = async (
  eventLog: EventLog,
  stream: string,
  event: DomainEvent | { type: string; data: string },
  { at = startMs, metadata }: { at?: number; metadata?: string } = {},
): Promise<void> => {
  const last = await eventLog.read(stream, { direction: 'backwards', max: 1 }).catch(() => [])
  const revision = last[0]?.revision ?? -1
  const id = uuidV5(`${stream} ${revision + 1} ${event.type}`)
  const encoded =
    typeof event.data === 'string'
      ? {
          id,
          type: event.type,
          data: event.data,
          metadata: '{"schema_version":1,"actor":"test","effective_at":"2026-03-01T00:00:00.000Z"}',
        }
      : encodeEvent(event as DomainEvent, { id, actor: 'cli', effectiveAt: new Date(at).toISOString() })
  await eventLog.append(stream, revision === -1 ? 'none' : revision, [
    // The recording time is set as a writer would set it. A test can replace the metadata.
    {
      ...encoded,
      metadata: metadata ?? encoded.metadata.replace(/}$/, `,"recorded_at":"${new Date(at).toISOString()}"}`),
    },
  ])
}

export const issueKey = (
  eventLog: EventLog,
  keyId: string,
  organizationId = organizationIds[0] ?? '',
): Promise<void> =>
  appendTo(eventLog, keyStream(keyId), {
    type: 'ApiKeyIssued',
    data: {
      key_id: keyId,
      organization_id: organizationId,
      organization_name: 'Exämple "GmbH", {a,b} \\ NULL',
      name: 'backend',
      secret_hmac: hmac,
      last4: 'wxyz',
      permissions: ['ip_lookup', 'email_validation'],
      limits: { requests_per_minute: 60, requests_per_day: 1_000, email_validations_per_second: 10 },
      allowed_cidrs: keyId.endsWith('a') ? ['192.0.2.0/24', '2001:db8::/32'] : [],
      expires_at: keyId.endsWith('b') ? '2027-01-01T00:00:00.000Z' : null,
    },
  })

/** The suffix of keys whose calls are charged in two lines. */
const severalLines = '/several lines'

export const ledgerOver = (eventLog: EventLog, now = (): number => startMs): Ledger =>
  createLedger({
    eventLog,
    snapshot: async () => null,
    logger: silent,
    clock: { now },
    decide: (account, command, ...rest) => {
      const decision = decideCommand(account, command, ...rest)
      if (isRefusal(decision) || !command.key.endsWith(severalLines)) return decision
      return decision.map((event) => {
        const [line] = event.type === 'CreditCharged' ? event.data.lines : []
        if (event.type !== 'CreditCharged' || line === undefined) return event
        return { ...event, data: { ...event.data, lines: [line, { ...line, sku: 'extra', amount: '0' }] } }
      })
    },
  })

export const openOrganizations = async (ledger: Ledger): Promise<void> => {
  for (const [i, organizationId] of organizationIds.entries())
    await ledger.submit(organizationId, {
      key: 'register',
      atMs: startMs,
      actor: 'cli',
      kind: 'register',
      name: `Organization ${i}`,
      overdraftLimit: parseCredits(['0', '3.5', '20'][i] ?? '0'),
    })
}

/** A charged lookup of an address with a location. */
export const plainCall = (key: string, atMs = startMs): LedgerCommand => ({
  key,
  atMs,
  actor: 'key:test',
  requestId: key.slice(0, 64),
  kind: 'record',
  call: {
    keyId: keyIds[0] ?? '',
    capability: 'ip_lookup',
    outcome: 'answered',
    facts: { kind: 'ip_lookup', success: true, country_code: 'AT', address_hmac: hmac },
  },
  book,
})

export const plainGrant = (key: string, amount: string): LedgerCommand => ({
  key,
  atMs: startMs,
  actor: 'cli',
  kind: 'grant',
  amount: parseCredits(amount),
  priority: 100,
  expiresAt: null,
  reason: 'test',
})

/** Writes three people, of whom one is fetched twice, one deleted and one erased, and a name that leads to no person. */
const writeProfiles = async (eventLog: EventLog): Promise<void> => {
  const at = new Date(startMs).toISOString()
  const subjects = ['A', 'B', 'C', 'D'].map((letter) => `sub_01J8ZQ5V7N3K2M4P6R8T0W1X2${letter}`)
  const [twice = '', gone = '', erased = '', nobody = ''] = subjects
  const aliasOf = (subjectId: string) => [
    { kind: 'lid' as const, hmac: hmac.replace(/.$/, subjectId.slice(-1)) },
  ]
  for (const [n, subject_id] of [twice, gone, erased, twice].entries())
    await appendTo(eventLog, profileStream(subject_id), {
      type: 'ProfileFetched',
      data: {
        subject_id,
        provider: 'http',
        observed_at: at,
        fetched_at: at,
        aliases: aliasOf(subject_id),
        former_aliases: [],
        key_id: uuidV5(`key ${n}`),
        sealed: `c2VhbGVk${n}`,
      },
    })
  await appendTo(eventLog, profileStream(gone), {
    type: 'ProfileGone',
    data: { subject_id: gone, provider: 'http', reason: 'gone', observed_at: at },
  })
  await appendTo(eventLog, profileStream(erased), {
    type: 'ProfileErased',
    data: { subject_id: erased, reason: 'request', erased_at: at, note: null },
  })
  await appendTo(eventLog, profileStream(nobody), {
    type: 'ProfileMissed',
    data: {
      subject_id: nobody,
      provider: 'http',
      reason: 'not_found',
      observed_at: at,
      aliases: aliasOf(nobody),
    },
  })
}

/**
 * Writes a history with everything that can happen: grants that expire or repay overdraft, prices that change, calls that are charged,
 * free, unpaid, idempotent or charged in several lines, reversals and negative corrections, rate limits, and keys from issue to
 * revocation. Several organizations are active in parallel, over three days.
 */
export const writeHistory = async (
  eventLog: EventLog,
  { seed, steps }: { seed: number; steps: number },
): Promise<void> => {
  const random = seededRandom(seed)
  let nowMs = startMs
  const ledger = ledgerOver(eventLog, () => nowMs)
  let sequence = 0
  const lots: { organizationId: string; grantId: string }[] = []
  const charges: { organizationId: string; chargeId: string; amount: bigint }[] = []

  const facts = (): CallFacts => {
    const draw = random.next()
    if (draw < 0.6) return { kind: 'ip_lookup', success: true, country_code: 'AT', address_hmac: hmac }
    if (draw < 0.75) return { kind: 'ip_lookup', success: false, country_code: null, address_hmac: hmac }
    if (draw < 0.85) return { kind: 'whoami' }
    return draw < 0.93 ? { kind: 'refusal', code: 'REQ_002' } : { kind: 'replay' }
  }

  const call = async (organizationId: string): Promise<void> => {
    const key = `call-${++sequence}${random.next() < 0.1 ? severalLines : ''}`
    const atMs = nowMs - random.integer(5_000)
    const established = facts()
    const refused = established.kind === 'refusal'
    const keyId = random.pick(keyIds)
    const idempotent = random.next() < 0.2
    const committed = await ledger.submit(organizationId, {
      key,
      atMs,
      actor: `key:${keyId}`,
      ...(random.next() < 0.9 ? { requestId: key } : {}),
      kind: 'record',
      call: {
        keyId,
        capability: established.kind === 'whoami' ? 'whoami' : 'ip_lookup',
        outcome: refused ? (random.next() < 0.5 ? 'refused' : 'failed') : 'answered',
        ...(refused ? { code: established.code } : {}),
        facts: established,
        idempotent,
      },
      book,
    })
    for (const event of committed.events)
      if (event.type === 'CreditCharged')
        charges.push({
          organizationId,
          chargeId: event.data.charge_id,
          amount: parseCredits(event.data.amount),
        })
  }

  const grant = async (organizationId: string): Promise<void> => {
    const key = `grant-${++sequence}`
    const expiresAt = random.next() < 0.6 ? new Date(nowMs + random.integer(40_000_000)).toISOString() : null
    const amount = parseCredits(`${random.integer(12)}.${1 + random.integer(999_998)}`.replace(/0+$/, ''))
    await ledger.submit(organizationId, {
      key,
      atMs: nowMs,
      actor: 'cli',
      kind: 'grant',
      amount,
      priority: random.integer(3),
      expiresAt,
      reason: 'it’s "quoted", {x}\\',
    })
    lots.push({ organizationId, grantId: eventIdOf(organizationId, key, 0) })
  }

  const expire = async (): Promise<void> => {
    const atMs = nowMs
    for (const { organizationId, grantId } of lots) {
      const command = { key: `expire/${grantId}/${++sequence}`, atMs, actor: 'system' }
      await ledger.submit(organizationId, { ...command, kind: 'expire', grantId }).catch((error: unknown) => {
        // The lot has not expired yet.
        if (!(error instanceof CommandRefused)) throw error
      })
    }
  }

  const reverse = async (): Promise<void> => {
    const charge = charges.splice(random.integer(charges.length), 1)[0]
    if (charge === undefined) return
    const { organizationId, chargeId, amount } = charge
    await ledger.submit(organizationId, {
      key: `reversal/${chargeId}`,
      atMs: nowMs,
      actor: 'system',
      kind: 'adjust',
      adjusts: chargeId,
      amount,
      reason: 'never delivered',
      rerateRun: null,
    })
  }

  /** A correction of the partner's cost, as re-rating makes it. */
  const correct = (organizationId: string) => {
    const amount = parseCredits(`0.${1 + random.integer(8)}`)
    const atMs = nowMs
    return ledger
      .submit(organizationId, {
        key: `correction-${++sequence}`,
        atMs,
        actor: 'cli',
        kind: 'adjust',
        adjusts: null,
        amount: -amount,
        reason: 'correction',
        rerateRun: 'run-1',
      })
      .catch((error: unknown) => {
        if (!(error instanceof CommandRefused)) throw error
      })
  }

  const setPrice = (organizationId: string) => {
    const effectiveFrom = new Date(nowMs + random.integer(20_000_000) - 10_000_000).toISOString()
    const amount = random.next() < 0.3 ? null : parseCredits(`0.${1 + random.integer(8)}`)
    return ledger.submit(organizationId, {
      key: `price-${++sequence}`,
      atMs: nowMs,
      actor: 'cli',
      kind: 'override_price',
      sku: random.pick(['ip_lookup', 'other']),
      amount,
      effectiveFrom,
    })
  }

  const limited = (organizationId: string) => {
    const exceeded = {
      key_id: random.pick(keyIds),
      policy: random.pick(['minute', 'day'] as const),
      window: new Date(nowMs - (nowMs % 60_000)).toISOString(),
      count: 1 + random.integer(50),
    }
    return ledger.submit(organizationId, {
      key: `rate-limit/${++sequence}`,
      atMs: nowMs,
      actor: 'system',
      kind: 'count_rate_limited',
      exceeded,
    })
  }

  const refused = (organizationId: string) => {
    const calls = {
      key_id: random.pick(keyIds),
      code: random.pick(['AUTH_003', 'REQ_002']),
      outcome: 'refused' as const,
      window: new Date(nowMs - (nowMs % 60_000)).toISOString(),
      counts: [
        { capability: 'ip_lookup' as const, count: 1 + random.integer(5_000) },
        { capability: 'whoami' as const, count: 1 + random.integer(50) },
      ],
    }
    const atMs = nowMs
    return ledger.submit(organizationId, {
      key: `refused/${++sequence}`,
      atMs,
      actor: 'system',
      kind: 'count_refused',
      refused: calls,
      book,
    })
  }

  await appendTo(eventLog, priceBookStream, { type: 'PriceBookPublished', data: defaultPriceBook })
  await openOrganizations(ledger)
  for (const keyId of keyIds) await issueKey(eventLog, keyId, random.pick(organizationIds))
  await Promise.all(organizationIds.map(grant))
  for (let step = 0; step < steps; step++) {
    nowMs += random.integer(Math.round((3 * 86_400_000) / steps))
    await Promise.all(Array.from({ length: 1 + random.integer(6) }, () => call(random.pick(organizationIds))))
    const organizationId = random.pick(organizationIds)
    const draw = random.next()
    if (draw < 0.2) await grant(organizationId)
    else if (draw < 0.3) await expire()
    else if (draw < 0.4) await reverse()
    else if (draw < 0.5) await correct(organizationId)
    else if (draw < 0.6) await setPrice(organizationId)
    else if (draw < 0.7) await limited(organizationId)
    else if (draw < 0.8) await refused(organizationId)
  }
  const [rotated = '', changed = '', revoked = ''] = keyIds
  await appendTo(
    eventLog,
    keyStream(rotated),
    {
      type: 'ApiKeyRotated',
      data: { key_id: rotated, successor_id: changed, grace_until: '2026-03-04T00:00:00.000Z' },
    },
    { at: nowMs },
  )
  for (const perMinute of [5, 7])
    await appendTo(eventLog, keyStream(changed), {
      type: 'ApiKeyLimitsChanged',
      data: {
        key_id: changed,
        limits: { requests_per_minute: perMinute, requests_per_day: 10, email_validations_per_second: 10 },
      },
    })
  await appendTo(
    eventLog,
    keyStream(revoked),
    { type: 'ApiKeyRevoked', data: { key_id: revoked, reason: 'leaked' } },
    { at: nowMs },
  )
  await appendTo(
    eventLog,
    keyStream(rotated),
    { type: 'ApiKeyRevoked', data: { key_id: rotated, reason: 'grace over' } },
    { at: nowMs + 1_000 },
  )
  await writeProfiles(eventLog)
  await appendTo(eventLog, 'operator', {
    type: 'RebuildRequested',
    data: { projections: ['accounts'], reason: 'test' },
  })
}
