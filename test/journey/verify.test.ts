import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { directoryForFile } from '../support/directory.ts'
import { variablesForFile } from '../support/postgres.ts'
import { changeEvent } from '../support/segments.ts'
import { cli, cliJson } from '../support/service.ts'

/** The command line's reports about a log and ledgers that were changed without the service. Each test continues from the previous one. */

type Fault = { revision: number; digest: string; fault: string }
type Verified = {
  ok: boolean
  ledgers: {
    organization_id: string
    ok: boolean
    fault: Fault | null
    known_faults: Fault[]
    account_row: string
  }[]
}

const dir = await directoryForFile()
const { pool, environment } = await variablesForFile()
const note = join(dir, 'note.txt')
const orgs: string[] = []

const verify = async (): Promise<Verified> => {
  const { code, out } = await cli(['ledger', 'verify', '--json'], environment)
  const verified = JSON.parse(out) as Verified
  expect(code).toBe(verified.ok ? 0 : 1)
  return verified
}
const ledgerOf = ({ ledgers }: Verified, org = ''): Verified['ledgers'][number] | undefined =>
  ledgers.find(({ organization_id }) => organization_id === org)

test('a checkpoint stored elsewhere proves later events', async () => {
  for (const name of ['One', 'Two', 'Three']) {
    const made = await cliJson<{ organization_id: string }>(['org', 'create', name], environment)
    await cliJson(['credits', 'grant', made.organization_id, '10', '--reason', 'opening'], environment)
    orgs.push(made.organization_id)
  }
  const signed = await cli(['event-log', 'checkpoint'], environment)
  expect(signed.code).toBe(0)
  await writeFile(note, signed.out)
  expect(signed.out).toMatch(/^enrichment-ledger\/\S+\n\d+\n\S{44}\n\n— enrichment-ledger\/\S+ \S+\n$/)

  await cliJson(['credits', 'grant', orgs[0] ?? '', '10', '--reason', 'more'], environment)
  const sound = await cli(['event-log', 'verify', '--against', note], environment)
  expect(sound).toMatchObject({
    code: 0,
    out: expect.stringMatching(/^ok: +true$[\s\S]*^against: .* verdict extended$/m),
  })
  expect(await cliJson(['event-log', 'checkpoints'], environment)).toMatchObject([{ note: signed.out }])

  const nonsense = await cli(['event-log', 'verify', '--against', join(dir, 'nothing')], environment)
  expect(nonsense).toMatchObject({ code: 2, err: expect.stringContaining('--against') })
})

test('"ledger verify" reports unchanged ledgers as intact', async () => {
  // Folds the events written so far.
  await cliJson(['projection', 'verify', '--all'], environment)
  const verified = await verify()
  expect(verified.ok).toBe(true)
  expect(verified.ledgers.map(({ ok, account_row }) => [ok, account_row])).toEqual(
    orgs.map(() => [true, 'sealed']),
  )
})

test('the checkpoint exposes a change of an earlier event', async () => {
  const [, two] = orgs
  await changeEvent(pool, { stream: `ledger-${two}`, revision: 1 }, ({ data }) => ({
    data: data.replace('opening', 'closing'),
  }))
  const broken = await cli(['event-log', 'verify', '--against', note], environment)
  expect(broken).toMatchObject({
    code: 1,
    out: expect.stringMatching(new RegExp(`^ok: +false$[\\s\\S]*^ledger-${two} +1 `, 'm')),
  })
})

test('a changed row, a changed event, a truncated end and a missing ledger are each named, and do not end the run', async () => {
  const [one, two, three] = orgs
  await pool.query(
    'update account_lots_v1 set remaining_micro = remaining_micro + 1 where organization_id = $1',
    [one],
  )
  await pool.query(
    `delete from log_segments g using log_streams s where s.id = g.stream_id and s.name = $1`,
    [`ledger-${three}`],
  )
  const verified = await verify()
  expect(ledgerOf(verified, one)).toMatchObject({ ok: false, fault: null, account_row: 'changed' })
  expect(ledgerOf(verified, two)).toMatchObject({ ok: false, fault: { revision: 1 } })
  expect(ledgerOf(verified, three)).toMatchObject({
    ok: false,
    fault: { revision: 0, fault: expect.stringContaining('there are no events') },
  })
  const { out } = await cli(['ledger', 'verify'], environment)
  expect(out).toMatch(/^ok: +false$/m)
  expect(out).toMatch(new RegExp(`^${one} +false .* changed$`, 'm'))
  expect(out).toMatch(new RegExp(`^${two} +false .* revision 1, `, 'm'))
  expect(out).toContain('"projection rebuild accounts" repairs it')
})
