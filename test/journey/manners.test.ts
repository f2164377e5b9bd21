import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { open, readdir, readFile, readlink, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { directoryForFile } from '../support/directory.ts'
import { variablesForFile } from '../support/postgres.ts'
import {
  type CliResult,
  cli,
  compileCache,
  createPartner,
  lookup,
  root,
  startCli,
  startService,
} from '../support/service.ts'

/** The output of commands and of the service in a pipe and on a terminal, the user's paths, and interruptions. */

const { environment } = await variablesForFile()
const dir = await directoryForFile()
const partner = await createPartner('100', environment)

const run = (...args: string[]): Promise<CliResult> => cli(args, environment)

/** Runs a shell command in the test's folder. */
const shell = async (
  line: string,
  variables: Readonly<Record<string, string>> = {},
): Promise<CliResult & { readonly code: number }> => {
  const child = spawn('bash', ['--norc', '-o', 'pipefail', '-c', line], {
    cwd: dir,
    env: {
      PATH: process.env.PATH ?? '',
      HOME: process.env.HOME ?? '',
      ...compileCache,
      ...environment,
      ...variables,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let [out, err] = ['', '']
  child.stdout.on('data', (chunk: Buffer) => {
    out += chunk.toString()
  })
  child.stderr.on('data', (chunk: Buffer) => {
    err += chunk.toString()
  })
  const [code] = await once(child, 'close')
  return { code: Number(code), out, err }
}

const node = `'${process.execPath}' '${join(root, 'src/cli.ts')}'`
const npm = `npm run -s --prefix '${root}' cli --`

describe('errors with --json', () => {
  test('in the environment name the variable', async () => {
    const wrong = await cli(['org', 'list', '--json'], { ...environment, API_PORT: 'many' })
    expect({ ...wrong, err: JSON.parse(wrong.err) }).toMatchObject({
      code: 2,
      err: { code: 'configuration', field: 'API_PORT' },
    })
    const away = await cli(['org', 'list', '--json'], {
      ...environment,
      DATABASE_URL: 'postgres://x@127.0.0.1:1/none',
    })
    expect({ ...away, err: JSON.parse(away.err) }).toMatchObject({
      code: 2,
      err: { code: 'configuration', field: 'DATABASE_URL', message: expect.stringContaining('127.0.0.1:1') },
    })
  })
})

test('the secret of a key that was typed in full is in no output and no log', async () => {
  const { apiKey, keyId, organizationId } = partner
  const secret = apiKey.slice(-38)
  const answers = [
    await cli(['key', 'limits', apiKey, '--requests-per-minute', '1000001', '--yes'], {
      ...environment,
      LOG_LEVEL: 'trace',
    }),
    await run('key', 'revoke', apiKey),
    await run('key', 'revoke', apiKey, '--json', '--dry-run'),
    await run('key', 'revoke', apiKey.slice(0, -1)),
    await run('key', 'rotate', 'a', 'b', apiKey),
    await run('key', 'rotate', '--json', 'a', 'b', apiKey),
    await run(apiKey, apiKey),
    await run('credits', 'grant', organizationId, apiKey),
    await run('key', 'revoke', `--${apiKey}`),
    await run('org', 'create', 'x', apiKey, '--json'),
  ]
  expect(answers.map(({ code }) => code)).toEqual([0, 2, 0, 2, 2, 2, 2, 2, 2, 2])
  for (const { out, err } of answers) expect(`${out}${err}`).not.toContain(secret.slice(0, 8))
  expect(JSON.parse(answers[2]?.out ?? '')).toMatchObject({ api_key_id: keyId })
})

describe('files', () => {
  test('are relative to the user’s folder, for npm run, which changes the folder, and for other processes', async () => {
    await writeFile(join(dir, 'book.json'), '[{"rule":"ip_lookup.located","amount":"1.5"}]')
    const propose = 'price propose book.json --from 2099-01-01 --dry-run --json'
    for (const line of [`${npm} ${propose}`, `${node} ${propose}`]) {
      const { code, out, err } = await shell(line)
      expect({ line, code, err }).toEqual({ line, code: 0, err: expect.any(String) })
      expect(JSON.parse(out).would.join('\n')).toContain('ip_lookup.located')
    }
    const exported = `ledger export ${partner.organizationId} --out out.jsonl`
    expect(await shell(`${npm} ${exported}`)).toMatchObject({ code: 0 })
    expect((await readFile(join(dir, 'out.jsonl'), 'utf8')).split('\n')[0]).toContain(
      'OrganizationRegistered',
    )
  })

  test('are saved for their owner alone, and do not overwrite an existing file unless requested', async () => {
    const month = new Date().toISOString().slice(0, 7)
    const file = join(dir, 'statement')
    const save = (org: string, ...more: string[]) =>
      run('ledger', 'statement', org, month, '--out', file, ...more)
    const before = await readdir(dir)
    expect((await save('org_01ARZ3NDEKTSV4RRFFQ69G5FAV', '--jsonl')).code).toBe(1)
    expect(await readdir(dir)).toEqual(before)
    expect((await save(partner.organizationId, '--jsonl')).code).toBe(0)
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    const first = await readFile(file, 'utf8')
    const refused = await save(partner.organizationId, '--csv')
    expect(refused).toMatchObject({ code: 2, err: expect.stringContaining('already exists') })
    expect(await readFile(file, 'utf8')).toBe(first)
    expect((await save(partner.organizationId, '--csv', '--force')).code).toBe(0)
    expect(await readFile(file, 'utf8')).toMatch(/^revision,event_id,/)
  })

  test('with the plan of a re-rate are saved for their owner alone, and a path that cannot be written is named', async () => {
    const service = await startService(environment)
    try {
      expect((await lookup(service.apiUrl, partner.apiKey, '81.2.69.142')).status).toBe(200)
    } finally {
      await service.end('SIGTERM')
    }
    const to = new Date()
    const from = new Date(to.getTime() - 86_400_000)
    const plan = (out: string) =>
      run(
        'rerate',
        'plan',
        '--book',
        '1',
        '--from',
        from.toISOString(),
        '--to',
        to.toISOString(),
        '--reason',
        'x',
        '--here',
        '--out',
        out,
      )
    const file = join(dir, 'plan.json')
    expect(await plan(file)).toMatchObject({ code: 0 })
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect(JSON.parse(await readFile(file, 'utf8'))).toMatchObject({ run: expect.any(String) })
    expect(await plan(join(dir, 'none', 'plan.json'))).toMatchObject({
      code: 2,
      err: expect.stringMatching(/none\/plan\.json cannot be written: ENOENT/),
    })
  })
})

describe('a reader that stops early', () => {
  test('ends the command without an error', async () => {
    for (const line of [
      `${node} --help | head -1`,
      `${node} ledger export --all | head -c 10`,
      `${node} org list --json 2>&1 | head -1`,
    ]) {
      const { code, err } = await shell(line)
      expect({ line, code, err }).toEqual({ line, code: 0, err: '' })
    }
  })

  test('does not change the exit code of a failed command', async () => {
    const line = `${node} projection parked --json | true; exit \${PIPESTATUS[0]}`
    expect((await shell(line)).code).toBe(0)
    const long = `${node} key list missing 2>&1 | true; exit \${PIPESTATUS[0]}`
    expect((await shell(long)).code).toBe(1)
  })
})

describe('an interruption', () => {
  const left =
    'The change may have been made, completely or in part. Look at its result: if a part is missing, run the same command again.'

  /** An import that waits for the rest of its input, which never arrives. */
  const waiting = async (
    name: string,
    use: (importing: ReturnType<typeof startCli>) => Promise<void>,
    ...more: string[]
  ) => {
    const fifo = join(dir, name)
    expect((await shell(`mkfifo '${fifo}'`)).code).toBe(0)
    // Opened for reading and writing, so that it has a writer and does not end.
    const held = await open(fifo, 'r+')
    const importing = startCli(['profiles', 'import', fifo, ...more], environment)
    try {
      await expect.poll(() => filesOf(importing.child.pid), { timeout: 30_000 }).toContain(fifo)
      await use(importing)
    } finally {
      importing.child.kill('SIGKILL')
      await held.close()
    }
  }

  test('ends the command with 130 and reports what is still to do, as one object with --json', async () => {
    await waiting(
      'first',
      async ({ child, ended }) => {
        child.kill('SIGINT')
        const { code, out, err } = await ended
        expect({ code, out }).toEqual({ code: 130, out: '' })
        expect(JSON.parse(err)).toEqual({
          code: 'interrupted',
          message: 'Interrupted.',
          field: null,
          remedy: left,
        })
      },
      '--json',
    )
  })

  test('a second one ends the command immediately; SIGTERM ends it with 143, SIGHUP with 129', async () => {
    for (const [signals, expected] of [
      [['SIGINT', 'SIGINT'], 130],
      [['SIGTERM'], 143],
      [['SIGHUP'], 129],
    ] as const)
      await waiting(signals.join(''), async ({ child, ended }) => {
        for (const signal of signals) child.kill(signal)
        const { code, err } = await ended
        expect({ code, err }).toEqual({ code: expected, err: `\nInterrupted. ${left}\n` })
      })
  })
})

const filesOf = async (pid: number | undefined): Promise<string[]> => {
  const open = await readdir(`/proc/${pid}/fd`)
  return Promise.all(open.map((one) => readlink(`/proc/${pid}/fd/${one}`).catch(() => '')))
}

describe('the log', () => {
  test('has a line for each call at debug level, without keys, addresses or the caller’s texts', async () => {
    const service = await startService({ ...environment, LOG_LEVEL: 'debug' })
    try {
      const answer = await lookup(service.apiUrl, partner.apiKey, '81.2.69.142')
      expect(answer.status).toBe(200)
      const wrong = await lookup(service.apiUrl, 'enl_live_wrong', '81.2.69.142')
      expect(wrong.status).toBe(401)
      const lines = (): Record<string, unknown>[] =>
        service
          .output()
          .split('\n')
          .filter((line) => line.includes('a call was answered'))
          .map((line) => JSON.parse(line))
      await expect.poll(lines).toHaveLength(2)
      const [first, second] = lines()
      expect(first).toEqual({
        level: 20,
        time: expect.any(Number),
        pid: expect.any(Number),
        hostname: expect.any(String),
        method: 'POST',
        route: '/v1/ip/lookup',
        status: 200,
        request_id: answer.body.request_id,
        ms: expect.any(Number),
        organization_id: partner.organizationId,
        credits: '1',
        msg: 'a call was answered',
      })
      expect(second).toMatchObject({ status: 401, organization_id: null, credits: '0' })
      for (const secret of [partner.apiKey.slice(-38), '81.2.69.142', 'enl_live_wrong'])
        expect(service.output()).not.toContain(secret)
      for (const line of service
        .output()
        .split('\n')
        .filter((one) => one.startsWith('{')))
        expect(() => JSON.parse(line)).not.toThrow()
    } finally {
      await service.end('SIGTERM')
    }
  })
})

test('--version prints the release', async () => {
  const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
  expect(await run('--version')).toEqual({
    code: 0,
    err: '',
    out: `enrichment-ledger ${version}, Node.js ${process.versions.node}\n`,
  })
})
