import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { Context, Declared } from '../../src/administration/declare.ts'
import { InputFault } from '../../src/administration/input.ts'
import { consentTo, Declined, NeedsYes } from '../../src/cli/consent.ts'
import { workInStores } from '../../src/cli/declared.ts'
import { exitCodeOf, failureText, withoutSecrets } from '../../src/cli/failure.ts'
import { closeWords } from '../../src/cli/help.ts'
import { optionsOf, typedIn } from '../../src/cli/parse.ts'
import { ConfigError } from '../../src/config.ts'
import { Unavailable } from '../../src/event-log/port.ts'
import { composeApiKey } from '../../src/keys/api-key.ts'
import { CommandRefused, LedgerUnavailable } from '../../src/ledger/command.ts'
import { root } from '../support/service.ts'
import { commands } from './commands.ts'

/** These rules apply to every command, including future ones. */

const changing = commands.flatMap(({ name, changes }) =>
  changes === 'nothing' ? [] : [{ name, ...changes }],
)
const named = (name: string) => {
  const command = commands.find((one) => one.name === name)
  if (command === undefined) throw new Error(`there is no command ${name}`)
  return command
}

describe('every command', () => {
  test('has its own name, and no option twice', () => {
    const names = commands.map(({ name }) => name)
    expect(names.filter((name, i) => names.indexOf(name) !== i)).toEqual([])
    const doubled = commands.filter((one) => new Set(optionsOf(one)).size !== optionsOf(one).length)
    expect(doubled.map(({ name }) => name)).toEqual([])
  })

  test('whose verb removes something always asks', () => {
    const takes =
      /^(?:abandon|acknowledge|announce-key|approve|apply|close|delete|disable|erase|purge|release|remove|revoke|rotate|void|withdraw)$/
    const careless = changing.filter(
      ({ name, asks }) => takes.test(name.split(' ')[1] ?? '') && asks !== 'always',
    )
    expect(careless.map(({ name }) => name)).toEqual([])
    expect(changing.filter(({ asks }) => asks === 'always').length).toBeGreaterThan(12)
  })
})

describe('consent', () => {
  const command = (asks: 'never' | 'on a terminal' | 'always', planned?: typeof asks) => ({
    asks,
    plan: async () => ({ says: ['it ends'], ...(planned === undefined ? {} : { asks: planned }) }),
  })
  const outcome = async (
    of: ReturnType<typeof command>,
    how: { yes?: boolean; dryRun?: boolean; answer?: boolean },
  ): Promise<string> => {
    const asked: string[] = []
    const { answer, yes = false, dryRun = false } = how
    const ask =
      answer === undefined
        ? null
        : async ({ says }: { says: readonly string[] }) => asked.push(...says) > 0 && answer
    const result = await consentTo(of, { yes, dryRun, ask }).then(
      (shown) => (shown === null ? 'runs' : 'is shown'),
      (error: unknown) =>
        error instanceof NeedsYes ? 'needs --yes' : error instanceof Declined ? 'is declined' : String(error),
    )
    return asked.length === 0 ? result : `asks and ${result}`
  }

  test.each([
    ['never', undefined, {}, 'runs'],
    ['never', undefined, { answer: true }, 'runs'],
    ['never', 'always', {}, 'needs --yes'],
    ['on a terminal', undefined, {}, 'runs'],
    ['on a terminal', undefined, { answer: true }, 'asks and runs'],
    ['on a terminal', undefined, { answer: false }, 'asks and is declined'],
    ['on a terminal', 'always', {}, 'needs --yes'],
    ['always', undefined, {}, 'needs --yes'],
    ['always', undefined, { answer: true }, 'asks and runs'],
    ['always', undefined, { answer: false }, 'asks and is declined'],
    ['always', undefined, { yes: true }, 'runs'],
    ['always', undefined, { yes: true, answer: false }, 'runs'],
    ['always', 'on a terminal', {}, 'runs'],
    ['always', undefined, { dryRun: true }, 'is shown'],
    ['always', undefined, { dryRun: true, yes: true }, 'is shown'],
  ] as const)('%s, planned %s, with %j: %s', async (asks, planned, how, expected) => {
    expect(await outcome(command(asks, planned), how)).toBe(expected)
  })
})

describe('text from outside cannot control the terminal', () => {
  const text = 'a\u001b[2J\u009b1m\u202e\r'
  const shown = 'a\u{fffd}[2J\u{fffd}1m\u{fffd}\u{fffd}'

  test('in the own lines of an answer', async () => {
    const declared = {
      name: 'event-log show',
      summary: '',
      fields: [],
      action: 'system.read',
      changes: 'nothing',
      read: () => ({ run: async () => ({ json: [], lines: [text] }) }),
    } as unknown as Declared
    const { run } = workInStores(declared, {
      given: {},
      typed: { texts: new Map(), flags: new Set() },
      json: false,
      open: async () => ({}) as Context,
      write: async () => undefined,
      leaves: () => undefined,
    })
    expect((await run()).lines).toEqual([shown])
  })

  test('in a plan', async () => {
    const asked: string[] = []
    const command = { asks: 'always', plan: async () => ({ says: [text] }) } as const
    const ask = async ({ says }: { says: readonly string[] }) => asked.push(...says) > 0
    await consentTo(command, { yes: false, dryRun: false, ask })
    expect(asked).toEqual([shown])
  })

  test.each([new CommandRefused(text), new InputFault('name', text), new NeedsYes([text])])(
    'in a failure: %o',
    (error) => {
      expect(failureText(error, { command: named('key revoke'), json: false })).toContain(shown)
      const json = failureText(error, { command: named('key revoke'), json: true })
      expect(json).not.toContain('\u009b')
      expect(JSON.stringify(JSON.parse(json))).toContain(JSON.stringify(text).slice(1, -1))
    },
  )
})

describe('a key on the command line', () => {
  const { apiKey, keyId } = composeApiKey(Buffer.from(Array.from({ length: 128 }, (_, i) => (i * 37) % 248)))

  test.each([
    apiKey,
    apiKey.slice(0, -20),
    `x"${apiKey}",`,
    `enl_operator_${keyId}_abc`,
    `enl_test_${keyId}_abc`,
  ])('has no secret in a message', (text) => {
    const shown = withoutSecrets(`there is no parameter for the value "${text}"`)
    expect(shown).toContain('_…')
    expect(shown).not.toContain(text.slice(text.indexOf(keyId) + keyId.length + 1).slice(0, 3))
  })
})

test.each([
  [['kye', 'list'], 'Did you mean "key list"?'],
  [['key', 'lsit'], 'Did you mean "key list"?'],
  [['prjection', 'rebiuld'], 'Did you mean "projection rebuild"?'],
  [['projecton'], 'Did you mean "projection"?'],
  [['doctr'], 'Did you mean "doctor"?'],
  [['key', 'sell'], null],
  [['sell'], null],
  [['x'.repeat(100_000), 'y'], null],
])('%j: %s', async (words, meant) => {
  expect(await closeWords(words)).toBe(meant)
})

test.each([
  [new Unavailable('the event log does not answer'), 'unavailable', 1],
  [new LedgerUnavailable('x'), 'unavailable', 1],
  [Object.assign(new Error('x'), { code: 'ECONNREFUSED' }), 'unavailable', 1],
  [new AggregateError([Object.assign(new Error('x'), { code: 'ETIMEDOUT' })]), 'unavailable', 1],
  [new CommandRefused('there is none'), 'refused', 1],
  [new Error(''), 'failed', 1],
  ['thrown as a text', 'failed', 1],
  [new ConfigError('API_PORT: a port'), 'configuration', 2],
  [new InputFault('name', 'is blank'), 'input', 2],
  [new NeedsYes(['it ends']), 'needs_yes', 2],
  [new Declined('Nothing was done.'), 'declined', 1],
])('%s is reported as %s, exit %d', (error, code, exit) => {
  expect(exitCodeOf(error)).toBe(exit)
  const told = JSON.parse(failureText(error, { command: named('org list'), json: true }))
  expect(told).toMatchObject({ code, message: expect.stringMatching(/./) })
})

test('an unknown option is reported with the one that was probably meant', () => {
  expect(() => typedIn(named('credits grant'), ['org_1', '5', '--expires-ta', 'x'])).toThrow(
    expect.objectContaining({
      message: '"credits grant" has no option --expires-ta',
      remedy: 'did you mean --expires-at?',
    }),
  )
  expect(() => typedIn(named('org list'), ['--yes'])).toThrow('"org list" has no option --yes')
  expect(typedIn(named('credits adjust'), ['org_1', '-5', 'why']).texts.get('amount')).toBe('-5')
})

test('src/cli/enl is the command line from any folder, even through a link', () => {
  const folder = mkdtempSync(join(tmpdir(), 'enl-'))
  try {
    symlinkSync(join(root, 'src/cli/enl'), join(folder, 'enl'))
    const { status, stdout } = spawnSync(join(folder, 'enl'), ['credits', '--help'], {
      cwd: folder,
      encoding: 'utf8',
    })
    expect([status, stdout]).toEqual([0, expect.stringContaining('credits grant')])
  } finally {
    rmSync(folder, { recursive: true })
  }
})

describe('completion in bash', () => {
  const script = spawnSync(process.execPath, ['src/cli.ts', 'completion', 'bash'], {
    cwd: root,
    encoding: 'utf8',
  })

  const offeredFor = (lines: readonly (readonly string[])[]): string[][] => {
    const asked = lines.map(
      (words) => `COMPREPLY=(); COMP_WORDS=(enl ${words.map((one) => `'${one}'`).join(' ')})
COMP_CWORD=${words.length}; _enl_complete; echo "\${COMPREPLY[*]}"`,
    )
    const program = [`source /dev/stdin <<'SCRIPT'`, script.stdout, 'SCRIPT', ...asked].join('\n')
    const { stdout, stderr, status } = spawnSync('bash', ['--norc'], { input: program, encoding: 'utf8' })
    expect({ stderr, status }).toEqual({ stderr: '', status: 0 })
    return stdout
      .split('\n')
      .slice(0, -1)
      .map((line) => line.split(' ').filter(Boolean))
  }

  test('is a valid bash script, and defines the command it completes', () => {
    expect(script).toMatchObject({ status: 0, stderr: '' })
    const { stdout } = spawnSync('bash', ['--norc', '-c', `${script.stdout}\ntype -t enl; complete -p enl`], {
      encoding: 'utf8',
    })
    expect(stdout).toBe('function\ncomplete -o default -F _enl_complete enl\n')
  })

  test('offers nouns, verbs and options, and files for a value', () => {
    const nouns = [...new Set(commands.map(({ name }) => name.split(' ')[0] ?? ''))]
    const ofRevoke = ['key', 'reason', 'org', 'dry-run', 'yes', 'as', 'json', 'help']
    const expected: readonly (readonly [readonly string[], readonly string[]])[] = [
      [[''], [...nouns, '--help', '--version']],
      [['cred'], ['credits']],
      [['key', 'rev'], ['revoke']],
      [['key', 'revoke', '--'], ofRevoke.map((name) => `--${name}`)],
      [['org', 'list', '--y'], []],
      [['credits', 'grant', 'org_1', '--exp'], ['--expires-at']],
      [['migrate', '--d'], ['--dry-run']],
      [['price', 'propose', 'boo'], []],
      ...commands.map(
        (one) => [[...one.name.split(' '), '--'], optionsOf(one).map((name) => `--${name}`)] as const,
      ),
    ]
    const lines = expected.map(([words]) => words)
    const offered = offeredFor(lines)
    expect(lines.map((words, i) => [words, offered[i]])).toEqual(expected)
  })
})
