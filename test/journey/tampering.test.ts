import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { chain } from '../../src/event-log/hash-chain.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { changeEvent, recordedEvents } from '../support/segments.ts'
import {
  cli,
  cliJson,
  createPartner,
  eventually,
  lookup,
  type Partner,
  startService,
} from '../support/service.ts'

/**
 * Someone with all rights in the database changes data that a bill depends on. The table shows which command reports the change
 * to finance, and in which words. The first row is an unchanged database, for which the command line reports nothing.
 */

let database: TestDatabase
let pool: pg.Pool
let environment: Record<string, string>
let partner: Partner
let ledger = ''
const requests: string[] = []
/** These tables are changed below, and restored after each row. */
const tables = [
  'log_segments',
  'log_streams',
  'account_lots_v1',
  'ledger_lines_v2',
  'log_tree_tiles',
  'log_head',
  'projection_checkpoints',
]

beforeAll(async () => {
  database = await testDatabase()
  pool = new pg.Pool({ connectionString: database.url, max: 1 })
  environment = {
    DATABASE_URL: database.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
    KEY_DIR: database.keyDir,
  }
  partner = await createPartner('10', environment)
  ledger = `ledger-${partner.organizationId}`
  const service = await startService(environment)
  try {
    for (const ip of ['8.8.8.8', '10.0.0.1', '8.8.8.8']) {
      const { headers } = await lookup(service.apiUrl, partner.apiKey, ip)
      requests.push(headers.get('x-request-id') ?? '')
    }
    await eventually(async () => {
      const { rows } = await pool.query(
        'select count(*)::int as n from ledger_lines where request_id is not null',
      )
      return rows[0].n === 3 ? true : undefined
    })
  } finally {
    await service.end('SIGTERM')
  }
  await cliJson(['event-log', 'checkpoint'], environment)
  for (const table of tables) await pool.query(`create table kept_${table} as table ${table}`)
})

afterAll(async () => {
  await pool?.end()
  await database?.drop()
})

afterEach(async () => {
  await pool.query('begin')
  for (const table of tables) {
    await pool.query(`delete from ${table}`)
    await pool.query(`insert into ${table} overriding system value table kept_${table}`)
  }
  await pool.query('commit')
})

const sql = (text: string, values: unknown[] = []) => pool.query(text, values)
const revisionOf = async (stream: string, type: string, data = ''): Promise<number> => {
  const found = (await recordedEvents(pool)).find(
    (event) => event.stream === stream && event.type === type && event.data.includes(data),
  )
  if (found === undefined) throw new Error(`${stream} holds no ${type}`)
  return found.revision
}
const changed = async (stream: string, type: string, from: string, to: string): Promise<void> =>
  changeEvent(pool, { stream, revision: await revisionOf(stream, type, from) }, ({ data }) => ({
    data: data.replace(from, to),
  }))

/** Changes an event in a ledger and recomputes every later digest, so the chain is intact. */
const rechained = async (type: string, from: string, to: string): Promise<void> => {
  const first = await revisionOf(ledger, type, from)
  const events = (await recordedEvents(pool)).filter(({ stream }) => stream === ledger)
  let previous = ''
  for (const event of events) {
    const [, open = '', recordedAt = '', digest = ''] =
      /^(.*),"recorded_at":"([^"]+)","digest":"([^"]+)"\}$/.exec(event.metadata) ?? []
    if (event.revision < first) {
      previous = digest
      continue
    }
    const data = event.revision === first ? event.data.replaceAll(from, to) : event.data
    const place = { stream: ledger, revision: event.revision, previous }
    const fresh = chain({ ...event, data, metadata: `${open}}` }, place, recordedAt)
    previous = fresh.digest
    await changeEvent(pool, event, () => ({ data, metadata: fresh.event.metadata }))
  }
}

const said = async (command: string): Promise<string> => {
  const { code, out, err } = await cli(command.split(' '), environment)
  if (code !== 1) throw new Error(`${command} ended with ${code}: ${out}${err}`)
  return `${out}${err}`
}

test('in an unchanged database, every command reports that all is intact', async () => {
  for (const command of ['ledger verify', 'event-log verify', 'ledger reconcile', 'projection verify --all'])
    expect({ command, ...(await cli(command.split(' '), environment)) }).toMatchObject({ command, code: 0 })
})

type Row = { what: string; tamper: () => Promise<unknown>; named: Readonly<Record<string, RegExp>> }

const rows: Row[] = [
  {
    what: 'one letter of a grant',
    tamper: () => changed(ledger, 'CreditGranted', '"amount":"10"', '"amount":"90"'),
    named: {
      'ledger verify': /revision 1, event \S+ \(CreditGranted\).*its bytes do not match its digest/,
      'event-log verify': /its bytes do not match its digest/,
    },
  },
  {
    what: 'a price of the book that priced the calls',
    tamper: () =>
      changed(
        'pricebook',
        'PriceBookPublished',
        '"sku":"ip_lookup","amount":"1"',
        '"sku":"ip_lookup","amount":"2"',
      ),
    named: {
      'ledger verify': /price book 1 was changed after it had priced 2 charges, the first at revision \d+/,
      'event-log verify': /pricebook.*its bytes do not match its digest/s,
    },
  },
  {
    what: 'two events of a ledger, swapped',
    tamper: async () => {
      const [one, two] = (await recordedEvents(pool)).filter(
        ({ stream, type }) => stream === ledger && type === 'KeyUsed',
      )
      if (one === undefined || two === undefined) throw new Error('two calls')
      await changeEvent(pool, one, () => ({ id: two.id, data: two.data, metadata: two.metadata }))
      await changeEvent(pool, two, () => ({ id: one.id, data: one.data, metadata: one.metadata }))
    },
    named: {
      'ledger verify': /\(KeyUsed\).*its bytes do not match its digest/,
      'event-log verify': /its bytes do not match its digest/,
    },
  },
  {
    what: 'the append of a call, deleted from the middle of a ledger',
    tamper: async () =>
      sql(
        `delete from log_segments g using log_streams s where s.id = g.stream_id and s.name = $1
           and g.last_revision = (select min(last_revision) from log_segments where stream_id = s.id and last_revision > 2)`,
        [ledger],
      ),
    named: {
      'ledger verify': /an event is missing|cannot be opened|ends before/,
      'event-log verify': /missing|ends before/,
    },
  },
  {
    what: 'a cheaper charge, with every later digest recomputed',
    tamper: () => rechained('CreditCharged', '"amount":"1"', '"amount":"0.5"'),
    named: {
      'ledger verify':
        /\(CreditCharged\).*charges 0\.5 .*, but its facts, the tariff and price book 1 result in 1 /,
      'event-log verify': /leaves have the root/,
    },
  },
  {
    what: 'a call made free, with every later digest recomputed',
    tamper: () => rechained('KeyUsed', '"success":true', '"success":false'),
    named: {
      'ledger verify': /the tariff and price book 1 result in 0/,
      'event-log verify': /leaves have the root/,
    },
  },
  {
    what: "an account's row",
    tamper: () => sql('update account_lots_v1 set remaining_micro = remaining_micro + 1'),
    named: {
      'ledger verify': /CHANGED .* its row in accounts was changed after the projector wrote it/,
      'projection verify accounts': /account/,
    },
  },
  {
    what: 'a line of a statement',
    tamper: () =>
      sql('update ledger_lines_v2 set amount_micro = amount_micro + 500000 where request_id = $1', [
        requests[0],
      ]),
    named: { 'ledger reconcile': /\w{26}/, 'projection verify ledger_lines': /ledger_lines/ },
  },
]

describe('tampering is reported:', () => {
  test.each(rows)('$what', { timeout: 60_000 }, async ({ tamper, named }) => {
    await tamper()
    for (const [command, words] of Object.entries(named)) expect(await said(command)).toMatch(words)
  })
})
