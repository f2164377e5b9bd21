import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { keyDirOf } from '../../src/foundation/data-dir.ts'
import { directoryForFile } from '../support/directory.ts'
import { houseForFile } from '../support/house.ts'
import { type CliResult, cli, cliJson } from '../support/service.ts'
import { cliOnTerminal } from '../support/terminal.ts'

/** Before a command changes something, it shows the change and asks for consent, on a terminal and in a script. */

const house = await houseForFile()
const partner = await house.partner({ credits: '10' })
const dir = await directoryForFile()
await writeFile(join(dir, 'patch.json'), '[{"rule":"ip_lookup.located","amount":"1.5"}]')
const environment = {
  DATABASE_URL: house.foundation.url,
  DATABASE_MIGRATION_URL: house.foundation.migrationUrl,
  SECRET_KEY: house.config.SECRET_KEY ?? '',
  KEY_DIR: keyDirOf(house.config),
  TWO_PERSON: 'off',
}

const run = (...args: string[]): Promise<CliResult> => cli(args, environment)
/** The end of the event log. Every write changes it. */
const head = (): Promise<bigint> => house.foundation.eventLog.head()
const json = <Answer>(...args: string[]): Promise<Answer> => cliJson<Answer>(args, environment)

describe('a dry run', () => {
  test('describes the change in sentences and states that nothing was written', async () => {
    const { code, out } = await run('credits', 'grant', partner.organizationId, '5', '--dry-run')
    expect(code).toBe(0)
    expect(out.split('\n')[0]).toMatch(/^Grant org_\w+ a lot of 5 credits/)
    expect(out.trimEnd().endsWith('Nothing was written.')).toBe(true)
  })
})

describe('without a terminal', () => {
  test('a command that removes something needs --yes: it exits with 2, and prints its effect and what to do', async () => {
    const { keyId } = partner
    const before = await head()
    const { code, out, err } = await run('key', 'revoke', keyId)
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(err).toMatch(
      /^Revoke key .*\n\nNothing was done: the change must be confirmed, but there is no terminal\.\nadd --yes to make the change, or --dry-run/,
    )
    const inJson = await run('key', 'revoke', keyId, '--json')
    expect({ code: inJson.code, out: inJson.out }).toEqual({ code: 2, out: '' })
    expect(JSON.parse(inJson.err)).toEqual({
      code: 'needs_yes',
      message: expect.stringContaining('Nothing was done'),
      field: 'yes',
      remedy: expect.stringContaining('--yes'),
      would: [expect.stringMatching(/^Revoke key /)],
    })
    expect(await head()).toBe(before)
  })

  test('a command that grants something runs, but needs --yes if it takes something away', async () => {
    const { organizationId: org } = partner
    expect((await run('credits', 'adjust', org, '3', '--reason', 'given')).code).toBe(0)
    const before = await head()
    expect((await run('credits', 'adjust', org, '-3', '--reason', 'taken')).code).toBe(2)
    expect((await run('key', 'limits', partner.keyId, '--requests-per-minute', '1')).code).toBe(2)
    expect(await head()).toBe(before)
    expect((await run('credits', 'adjust', org, '-3', '--reason', 'taken', '--yes')).code).toBe(0)
    expect((await run('key', 'limits', partner.keyId, '--requests-per-minute', '9000000')).code).toBe(0)
  })

  test("an existing user's password is not changed without --yes", async () => {
    expect((await run('user', 'create', 'yan')).code).toBe(0)
    const again = await run('user', 'password', 'yan')
    expect(again).toMatchObject({ code: 2, out: '' })
    expect(again.err).toContain(
      'Set a new password for yan. The current password stops working, and every open session ends.',
    )
    expect((await run('user', 'password', 'yan', '--yes')).code).toBe(0)
  })
})

describe('on a terminal', () => {
  const revoke = (keyId: string) => cliOnTerminal(['key', 'revoke', keyId], environment)

  test('a no, an empty answer and the end of the input change nothing; exit code 1', async () => {
    for (const keys of ['n\r', '\r', '\u0004']) {
      const before = await head()
      const asked = revoke(partner.keyId)
      await asked.until('Continue? [y/N]')
      expect(asked.shown()).toContain(`Revoke key ${partner.keyId} `)
      asked.type(keys)
      expect({ keys, code: await asked.ended }).toEqual({ keys, code: 1 })
      expect(asked.shown()).toContain('Nothing was done.')
      expect(await head()).toBe(before)
    }
  })

  test('Ctrl-C at the question changes nothing, reports that, and exits with 130', async () => {
    const before = await head()
    const asked = revoke(partner.keyId)
    await asked.until('Continue? [y/N]')
    asked.type('\u0003')
    expect(await asked.ended).toBe(130)
    expect(asked.shown()).toContain('Interrupted: nothing was changed.')
    expect(await head()).toBe(before)
  })

  test('a grant also needs confirmation, and a yes makes it; --yes skips the question', async () => {
    const { organizationId: org } = partner
    const { balance: before } = await json<{ balance: string }>('credits', 'balance', org)
    const asked = cliOnTerminal(['credits', 'grant', org, '2'], environment)
    await asked.until('Continue? [y/N]')
    asked.type('y\r')
    expect(await asked.ended).toBe(0)
    const sure = cliOnTerminal(['credits', 'grant', org, '2', '--yes'], environment)
    expect(await sure.ended).toBe(0)
    expect(sure.shown()).not.toContain('Continue?')
    const { balance } = await json<{ balance: string }>('credits', 'balance', org)
    expect(Number(balance)).toBe(Number(before) + 4)
  })

  test('the value - asks for a text about a person, which must not be in the history of the shell', async () => {
    const asked = cliOnTerminal(['ledger', 'find-calls', partner.organizationId, '-'], environment)
    await asked.until('E-mail address, IP address or profile id: ')
    asked.type('ada@example.com\r')
    expect(await asked.ended).toBe(0)
    expect(asked.shown()).toMatch(/found: +0/)
  })
})
