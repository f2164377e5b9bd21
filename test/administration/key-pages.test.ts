/** The list of API keys is read page by page, without reading all keys for each page. */
import { expect, test } from 'vitest'
import { type ApiKeyRow, keysAfter } from '../../projections/api-keys.ts'
import { declarationNamed } from '../../src/administration/declarations.ts'
import type { Context, Page } from '../../src/administration/declare.ts'
import { houseForFile, type Partner } from '../support/house.ts'
import { logger } from '../support/logger.ts'

const partners: Partner[] = []

const issue = async (): Promise<void> => {
  partners.push(await house.partner())
  await house.projected()
}

const house = await houseForFile()
const context = {
  foundation: house.foundation,
  logger,
  caughtUp: () => house.projected(),
} as unknown as Context
for (let n = 0; n < 5; n++) await issue()

test('every key is on exactly one page, also if keys are issued meanwhile', async () => {
  const { page } = declarationNamed('key list').read({})
  const listed: unknown[] = []
  let cursor: string | null = null
  let pages = 0
  do {
    const found: Page | undefined = await page?.(context, { cursor, max: 2 })
    listed.push(...(found?.rows ?? []).map((row) => row.api_key_id))
    cursor = found?.next ?? null
    if (pages++ < 2) await issue()
  } while (cursor !== null)
  const { rows } = await house.foundation.pool.query<{ key_id: string }>(
    'select key_id from api_keys order by created_at, key_id',
  )
  expect(rows.length).toBe(7)
  expect(listed).toEqual(rows.map(({ key_id }) => key_id))
  const { json } = await declarationNamed('key list').read({}).run(context)
  expect((json as { api_key_id: string }[]).map((row) => row.api_key_id)).toEqual(listed)
})

test('a page reads only its own keys', async () => {
  const pageOf = async (organizationId: string | null): Promise<ApiKeyRow[]> => {
    const { text, values } = keysAfter(organizationId, { after: null, max: 3 })
    return (await house.foundation.pool.query<ApiKeyRow>(text, [...values])).rows
  }
  expect(await pageOf(null)).toHaveLength(3)
  const { organizationId } = partners[0] ?? { organizationId: '' }
  expect((await pageOf(organizationId)).map((key) => key.organization_id)).toEqual([organizationId])
})
