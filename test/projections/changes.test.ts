/** PostgreSQL stores plain objects as rows with equal values, by every kind of statement. */
import fc from 'fast-check'
import pg from 'pg'
import { afterAll, beforeEach, expect, test } from 'vitest'
import {
  type Change,
  definitionOf,
  insert,
  type RowOf,
  remove,
  type Table,
  update,
  upsert,
  upsertOnly,
} from '../../projections/rows.ts'
import { writeChanges } from '../../src/projector/tables.ts'
import { randomCases } from '../support/exhaustive.ts'
import { testDatabase } from '../support/postgres.ts'

const things = {
  name: 'things',
  columns: {
    id: 'integer not null',
    part: 'text not null',
    note: 'text',
    words: 'text[] not null',
    facts: 'json',
    amount: 'bigint not null check (amount < 1000000)',
    total: 'numeric',
    at: 'timestamptz',
    given: 'boolean not null',
  },
  key: ['id', 'part'],
} as const satisfies Table
type Thing = RowOf<typeof things>

const database = await testDatabase()
const client = new pg.Client({ connectionString: database.url })
await client.connect()
await client.query(`create table things_here (${definitionOf(things)})`)
afterAll(async () => {
  await client?.end()
  await database.drop()
})
beforeEach(() => client.query('truncate things_here'))

const write = (...changes: readonly Change[]): Promise<void> =>
  writeChanges(client, changes, (name) => `${name}_here`)

const held = async (): Promise<unknown[]> =>
  (await client.query('select * from things_here order by id, part')).rows

const thing = (id: number, given: Partial<Thing> = {}): Thing => ({
  id,
  part: 'a',
  note: null,
  words: [],
  facts: null,
  amount: 0n,
  total: null,
  at: null,
  given: false,
  ...given,
})

const shown = ({ amount, total, at, ...row }: Thing): unknown => ({
  ...row,
  amount: String(amount),
  total: total === null ? null : String(total),
  at: at === null ? null : new Date(at),
})

const text = fc.oneof(
  fc.string({ unit: 'grapheme' }).map((some) => some.replaceAll('\0', '')),
  fc.constantFrom(
    '',
    '\\',
    '\\N',
    '\\.',
    '\t',
    'a\tb',
    '\n',
    '\r\n',
    '\\t',
    'NULL',
    '{}',
    '"',
    "'",
    ',',
    '\x1e\x1f',
  ),
)

test.each([
  ['copied into an empty table', insert],
  ['merged into it', upsert],
])('any text and value can be read back unchanged: %s', async (_, into) => {
  const row = fc.record({
    note: fc.option(text),
    words: fc.array(text, { maxLength: 3 }),
    facts: fc.option(fc.record({ a: text, b: fc.array(text) })),
    amount: fc.bigInt(-(10n ** 15n), 999_999n),
    total: fc.option(fc.bigInt(-(10n ** 30n), 10n ** 30n)),
    at: fc.option(
      fc
        .date({ min: new Date(0), max: new Date('2100-01-01'), noInvalidDate: true })
        .map((date) => date.toISOString()),
    ),
    given: fc.boolean(),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(row, { minLength: 1, maxLength: 5 }), async (rows) => {
      await client.query('truncate things_here')
      const all = rows.map((one, id) => thing(id, one))
      await write(into(things, all))
      expect(await held()).toEqual(all.map(shown))
    }),
    { numRuns: randomCases(60) },
  )
})

test('inserting an existing row is an error, and so is a value that violates a constraint', async () => {
  await write(insert(things, [thing(1)]))
  await expect(write(insert(things, [thing(2), thing(1)]))).rejects.toMatchObject({ code: '23505' })
  await expect(write(insert(things, [thing(3, { amount: 1_000_000n })]))).rejects.toMatchObject({
    code: '23514',
  })
  await expect(write(insert(things, [thing(4, { note: 'a\0' })]))).rejects.toMatchObject({ code: '22021' })
  expect(await held()).toEqual([shown(thing(1))])
})

test('an upsert replaces all values, some of them, or only the named ones', async () => {
  await write(insert(things, [thing(1, { note: 'old', amount: 1n }), thing(2, { note: 'old', amount: 1n })]))
  const fresh = [thing(1, { note: 'new', amount: 5n, given: true }), thing(3, { note: 'new' })]
  await write(upsert(things, fresh, { amount: 't.amount + excluded.amount' }))
  const summed = thing(1, { note: 'new', amount: 6n, given: true })
  expect(await held()).toEqual(
    [summed, thing(2, { note: 'old', amount: 1n }), fresh[1] ?? thing(3)].map(shown),
  )
  await write(upsertOnly(things, [thing(2, { note: 'newer', amount: 9n })], ['note']))
  await write(upsertOnly(things, [thing(3, { note: 'newer' }), thing(4)], []))
  expect(await held()).toEqual(
    [summed, thing(2, { note: 'newer', amount: 1n }), thing(3, { note: 'new' }), thing(4)].map(shown),
  )
})

test('an update changes the given columns of existing rows; a removal matches the given columns', async () => {
  await write(insert(things, [thing(1), thing(1, { part: 'b' }), thing(2)]))
  await write(
    update(things, [
      { id: 1, part: 'b', note: 'x', words: ['y'] },
      { id: 9, part: 'a', note: 'x', words: [] },
    ]),
    update(things, [{ id: 2, part: 'a', amount: 4n }], { amount: 't.amount - excluded.amount' }),
  )
  expect(await held()).toEqual(
    [thing(1), thing(1, { part: 'b', note: 'x', words: ['y'] }), thing(2, { amount: -4n })].map(shown),
  )
  await write(remove(things, [{ id: 1 }, { id: 7 }]))
  expect(await held()).toEqual([shown(thing(2, { amount: -4n }))])
})

test('without rows there is no statement', async () => {
  const silent = { query: () => expect.unreachable() } as unknown as pg.ClientBase
  for (const change of [insert(things, []), upsert(things, []), update(things, []), remove(things, [])])
    await writeChanges(silent, [change], (name) => name)
})
