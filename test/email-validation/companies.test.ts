import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { createCompanies } from '../../src/capabilities/email-validation/company/companies.ts'
import type { CompanyResult } from '../../src/capabilities/email-validation/contract.ts'
import { Unavailable } from '../../src/event-log/port.ts'
import { databaseForFile } from '../support/postgres.ts'

/** Company lookups: the order of the sources, and that an outage never counts as an answer. */

const { pool } = await databaseForFile({ max: 2 })

const put = (domain: string, name: string) =>
  pool.query(
    `insert into companies (domain, name, source, source_updated_at, preference, tie_break)
     values ($1, $2, 'test', '2026-10-01Z', 0, '') on conflict (domain) do update set name = excluded.name`,
    [domain, name],
  )

describe('companies', () => {
  test('a database error makes the lookup fail, not "not found"', async () => {
    await put('back.com', 'Back')
    let away = true
    const flaky = {
      query: (statement: pg.QueryConfig) =>
        away ? Promise.reject(new Error('connect ECONNREFUSED')) : pool.query(statement),
    } as unknown as pg.Pool
    const companies = createCompanies({ pool: flaky, homePages: null })
    await expect(companies.find('back.com')).rejects.toBeInstanceOf(Unavailable)
    away = false
    expect((await companies.find('back.com'))?.name).toBe('Back')
  })

  test('sessions ended by an operator and refused connections count as an outage; a wrong schema is our own fault', async () => {
    const closed = new pg.Pool({
      connectionString: 'postgres://nobody@127.0.0.1:1/none',
      connectionTimeoutMillis: 2_000,
    })
    await expect(createCompanies({ pool: closed, homePages: null }).find('a.com')).rejects.toBeInstanceOf(
      Unavailable,
    )
    await closed.end()
    const ended = {
      query: () => pool.query('select pg_terminate_backend(pg_backend_pid())'),
    } as unknown as pg.Pool
    await expect(createCompanies({ pool: ended, homePages: null }).find('a.com')).rejects.toBeInstanceOf(
      Unavailable,
    )
    const wrong = { query: () => pool.query('select nothing from nowhere') } as unknown as pg.Pool
    await expect(createCompanies({ pool: wrong, homePages: null }).find('a.com')).rejects.toMatchObject({
      code: '42P01',
    })
  })

  test('the home page is asked only for domains that were not imported', async () => {
    await put('imported.com', 'Imported')
    const visited: string[] = []
    const fromPage = { name: 'Page' } as CompanyResult
    const homePages = {
      find: async (domain: string) => {
        visited.push(domain)
        return domain === 'own-page.com' ? fromPage : null
      },
    }
    const companies = createCompanies({ pool, homePages })
    expect((await companies.find('imported.com'))?.name).toBe('Imported')
    expect(await companies.find('own-page.com')).toBe(fromPage)
    expect(await companies.find('nothing.com')).toBeNull()
    expect(visited).toEqual(['own-page.com', 'nothing.com'])
  })
})
