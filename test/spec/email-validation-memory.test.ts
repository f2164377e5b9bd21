/** Decision 21, and mailboxes whose servers deferred us: the places where addresses are stored, and where they are never stored. */
import pino from 'pino'
import { beforeAll, describe, expect, test } from 'vitest'
import { emailValidation } from '../../src/capabilities/email-validation/index.ts'
import type { Config } from '../../src/config.ts'
import { startJobs } from '../../src/jobs/run.ts'
import { createMetrics } from '../../src/metrics/metrics.ts'
import { openCapabilities } from '../../src/start/capabilities.ts'
import { type House, type Partner, until } from '../support/house.ts'
import {
  chargedValidation,
  emailPartner,
  freeValidation,
  type MailWorld,
  mailboxes,
  mailHouse,
  path,
  resultOf,
  validate,
  validLine,
} from './email-validation-scene.ts'
import { bare, expectCredits } from './wire.ts'

let world: MailWorld
let house: House
const logged: string[] = []

mailHouse(
  (opened) => {
    ;({ house, world } = opened)
  },
  { logger: pino({ level: 'trace' }, { write: (line: string) => void logged.push(line) }) },
)

type Job = { readonly key: string; readonly data: string; readonly seconds: number }

const waitingJobs = async (): Promise<Job[]> =>
  (
    await house.query(
      `select singleton_key as key, data->>'data' as data,
              round(extract(epoch from start_after - created_on))::integer as seconds
         from pgboss.job where name = 'mailbox-retry' and state = 'created' order by created_on`,
    )
  ).map(({ key, data, seconds }) => ({ key: String(key), data: String(data), seconds: Number(seconds) }))

const runJobs = async (what: string, condition: () => Promise<boolean>): Promise<void> => {
  const logger = pino({ level: 'silent' })
  const { foundation } = house
  const config: Config = { ...house.config, ROLES: ['jobs'] }
  const opened = await openCapabilities([emailValidation], {
    foundation,
    config,
    logger,
    metrics: createMetrics(),
  })
  const jobs = await startJobs(foundation, logger, { jobs: opened.jobs })
  try {
    await until(what, condition)
  } finally {
    await jobs.stop()
    await opened.close()
  }
}

const letJobsBeDue = (): Promise<unknown> =>
  house.query(`update pgboss.job set start_after = now() where name = 'mailbox-retry'`)

/** A mail server that defers every client until `relent` is called. */
const greylisting = () => {
  let waiting = true
  const known = mailboxes('someone')
  return {
    script: {
      recipient: (...asked: Parameters<typeof known>) =>
        waiting ? '450 4.7.1 greylisted, try again in 5 minutes' : known(...asked),
    },
    relent: () => {
      waiting = false
    },
  }
}

describe('a mailbox whose server defers unknown clients', { shuffle: false }, () => {
  const domain = 'greylisting.example.com'
  const email = `someone@${domain}`
  const { script, relent } = greylisting()
  let partner: Partner
  let asked: () => number

  beforeAll(async () => {
    const server = await world.host(domain, script)
    asked = () => server.recipients().filter((mailbox) => mailbox === email).length
    partner = await emailPartner(house, { credits: '10' })
  })

  test('is unknown and free, with a time to retry; calls in between, by this or another partner, add no second job', async () => {
    const another = await emailPartner(house, { credits: '10' })
    for (const one of [partner, partner, another]) {
      const answer = await validate(house, one, email)
      expect(resultOf(answer)).toMatchObject({
        status: 'unknown',
        sub_status: 'greylisted',
        retry_after: 300,
        cached: false,
      })
      expectCredits(answer, '0', '10')
      expect(bare(answer.events)).toEqual(
        freeValidation(one, {
          status: 'unknown',
          sub_status: 'greylisted',
          decision_row: 12,
          domain,
        }),
      )
    }
    expect(asked()).toBe(3)
    const jobs = await waitingJobs()
    expect(jobs).toHaveLength(1)
    expect(jobs[0]?.seconds).toBe(300)
  })

  test('is checked again once by a process that runs jobs, and the next call gets the result: valid, cached, charged', async () => {
    relent()
    await letJobsBeDue()
    await runJobs('the mailbox was asked again', async () => {
      const rows = await house.query('select 1 from mailbox_checks')
      return rows.length > 0
    })
    expect(asked()).toBe(4)
    expect(await waitingJobs()).toEqual([])
    const answer = await validate(house, partner, email)
    const result = resultOf(answer)
    expect(result).toMatchObject({ status: 'valid', sub_status: 'accepted', cached: true, retry_after: null })
    expect(result.checks.smtp).toMatchObject({ deliverable: true, catch_all: false, code: 250 })
    const [kept] = await house.query('select checked_at from mailbox_checks')
    expect(result.checked_at).toBe(kept?.checked_at instanceof Date && kept.checked_at.toISOString())
    expect(bare(answer.events)).toEqual(
      chargedValidation(
        partner,
        { status: 'valid', sub_status: 'accepted', decision_row: 17, domain },
        { lines: [validLine], amount: '1' },
      ),
    )
    expectCredits(answer, '1', '9')
    expect(asked()).toBe(4)
  })

  test('the stored result is not free: without credits the call is refused before it is read', async () => {
    const poor = await emailPartner(house, { credits: '0' })
    expect((await validate(house, poor, email)).status).toBe(402)
  })

  test('is the same in every spelling of its domain, but different if its own letter case differs', async () => {
    const [localPart] = email.split('@')
    const answer = await validate(house, partner, `${localPart}@${domain.toUpperCase()}`)
    expect(resultOf(answer)).toMatchObject({ status: 'valid', cached: true })
    const other = await validate(house, partner, `${localPart?.toUpperCase()}@${domain}`)
    expect(resultOf(other)).toMatchObject({ cached: false })
  })

  test('is checked again after a day', async () => {
    await house.query(`update mailbox_checks set checked_at = now() - interval '24 h'`)
    const answer = await validate(house, partner, email)
    expect(resultOf(answer)).toMatchObject({ status: 'valid', cached: false })
  })
})

describe('decision 21: an address', () => {
  // This text occurs nowhere else in the database.
  const localPart = 'zq7.very-unlikely-mailbox'
  const domain = 'traceless.example.com'
  const email = `${localPart}@${domain}`
  const later = `${localPart}-later@later.${domain}`
  const malformed = `${localPart} malformed`

  let partner: Partner

  beforeAll(async () => {
    await world.host(domain, { recipient: mailboxes(localPart) })
    await world.host(`later.${domain}`, { recipient: () => '451 4.3.0 local error' })
    partner = await emailPartner(house, { credits: '10' })
    for (const [n, address] of [email, later, malformed].entries()) {
      const headers = { 'idempotency-key': `address-${n}` }
      expect((await validate(house, partner, address, { headers })).status).toBe(200)
    }
    // The fault is not in the address but elsewhere in the body. The refusal of this body must not leak the address either.
    await house.post(partner, path, { email, include_company_data: localPart })
    const poor = await emailPartner(house, { credits: '0' })
    expect((await validate(house, poor, email)).status).toBe(402)
  })

  test('is not in the ledger: only its keyed hash and its domain are', async () => {
    const events = await house.eventsOf(partner.organizationId)
    const text = JSON.stringify(events)
    expect(text).toContain(domain)
    expect(text).not.toContain(localPart)
    expect(text).not.toContain('@')
    const hashes = events.flatMap(
      ({ data }) => JSON.stringify(data).match(/"address_hmac":"([^"]+)"/)?.[1] ?? [],
    )
    expect(new Set(hashes).size).toBe(3)
    expect(hashes).toContain(house.foundation.secrets.addressHmac(email))
  })

  test('is not in the service’s log, at any level', () => {
    expect(logged.join('')).toContain('mailbox: checked')
    expect(logged.join('')).not.toContain(localPart)
  })

  test('has the same keyed hash for every partner and in any letter case', async () => {
    const other = await emailPartner(house, { credits: '10' })
    const { events } = await validate(house, other, `${localPart.toUpperCase()}@${domain}`)
    expect(events[0]?.data).toMatchObject({
      facts: { address_hmac: house.foundation.secrets.addressHmac(email) },
    })
  })

  test('is in no row of any table, in no encoding: stored answers and waiting jobs are encrypted', async () => {
    // The tables do contain data about these addresses: an answer for replays, and a job for the retry.
    expect(
      await house.query(`select 1 from idempotent_calls where organization_id = $1 and answer is not null`, [
        partner.organizationId,
      ]),
    ).toHaveLength(3)
    expect(await waitingJobs()).not.toHaveLength(0)
    const needles = [localPart, localPart.toUpperCase()].flatMap((text) => [
      text,
      Buffer.from(text).toString('hex'),
      ...base64Forms(text),
    ])
    for (const { schema, name } of await allTables()) {
      const rows = await house.query(`select row_to_json(t)::text as row from "${schema}"."${name}" t`)
      for (const { row } of rows)
        for (const needle of needles)
          expect({ table: name, found: String(row).includes(needle) }).toEqual({ table: name, found: false })
    }
  })

  test('is found by that search if it is there: the search works', async () => {
    await house.query('create table planted (one text, other bytea)')
    await house.query('insert into planted values (null, $1)', [Buffer.from(email)])
    const [planted] = await house.query('select row_to_json(t)::text as row from planted t')
    expect(String(planted?.row)).toContain(Buffer.from(localPart).toString('hex'))
    expect(await allTables()).toContainEqual({ schema: 'public', name: 'planted' })
    expect(await allTables()).toContainEqual({ schema: 'pgboss', name: 'job_common' })
    await house.query('drop table planted')
  })

  test('in a waiting job decrypts only under the name it was encrypted for', async () => {
    const { secrets, epochKeys } = house.foundation
    const job = (await waitingJobs()).find(({ key }) => key === secrets.addressHmac(later))
    expect(job?.seconds).toBe(900)
    const [hmac = '', sealed = ''] = job?.data.split(':') ?? []
    expect(hmac).toBe(secrets.addressHmac(later))
    expect(epochKeys.sealer('mailbox-retry').open(sealed, hmac)).toBe(later)
    expect(epochKeys.sealer('mailbox-retry').open(sealed, secrets.addressHmac(email))).toBeNull()
    expect(epochKeys.sealer('idempotent-answer').open(sealed, hmac)).toBeNull()
  })
})

const allTables = async (): Promise<{ schema: string; name: string }[]> =>
  (
    await house.query(
      `select n.nspname as schema, c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema')
          and n.nspname not like 'pg_toast%' and n.nspname not like 'pg_temp%'`,
    )
  ).map(({ schema, name }) => ({ schema: String(schema), name: String(name) }))

/** The text as it appears in longer base64 text, at each of its three possible offsets. */
const base64Forms = (text: string): string[] =>
  [0, 1, 2].map((before) => {
    const encoded = Buffer.from(`${'\0'.repeat(before)}${text}`).toString('base64url')
    // The first and last characters also encode bits of the surrounding bytes.
    return encoded.slice(before === 0 ? 0 : before + 1, -2)
  })
