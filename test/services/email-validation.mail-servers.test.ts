/** The decision table of e-mail validation, row by row, with real mail servers and a real resolver. */
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, describe, expect, test } from 'vitest'
import { until } from '../support/house.ts'
import { greylistedSeconds, known, knownMax, startMailHosts } from './mail/mail-hosts.ts'
import { type Judged, openValidation, type Validation } from './mail/validation.ts'

const hosts = await startMailHosts()
const validation = await openValidation(hosts)
afterAll(async () => {
  await validation.close()
  await hosts.close()
})

/** Instances of the validation that belong to a single test, so that tests share neither sessions nor memory. */
const own: Validation[] = []
const openOwn = async (options: Partial<Parameters<typeof openValidation>[0]> = {}): Promise<Validation> => {
  const opened = await openValidation({ ...hosts, ...options })
  own.push(opened)
  return opened
}
afterEach(async () => {
  await Promise.all(own.splice(0).map((opened) => opened.close()))
})

type Row = readonly [what: string, address: string, row: number, verdict: string, found?: string]

/** `found` is the decisive reply, or the resolver's error. */
const table: readonly Row[] = [
  ['no domain', 'known@nxdomain', 3, 'invalid/domain_not_found'],
  ['a null MX', 'known@null-mx', 4, 'invalid/null_mx'],
  ['neither MX nor address', 'known@no-mail', 5, 'invalid/no_mail_server'],
  ['an MX that does not exist', 'known@dangling', 6, 'invalid/mx_unroutable'],
  ['an MX that is an address', 'known@literal', 6, 'invalid/mx_unroutable'],
  ['an MX that is localhost', 'known@local', 6, 'invalid/mx_unroutable'],
  ['SERVFAIL because of a missing signature', 'known@bogus', 7, 'unknown/dns_error', 'ESERVFAIL'],
  ['name servers that do not run', 'known@dead', 7, 'unknown/dns_error', 'ETIMEOUT'],
  ['REFUSED', 'known@refused', 7, 'unknown/dns_error', 'EREFUSED'],
  ['queries that are dropped', 'known@silent', 7, 'unknown/dns_error', 'ETIMEOUT'],

  ['an MX without a server', 'known@all-down', 10, 'unknown/no_connect'],
  ['a tarpit', 'known@tarpit', 10, 'unknown/timeout'],
  ['a mailbox that is full for now', 'full@answering', 11, 'risky/mailbox_full', '452 4.2.2'],
  ['a mailbox that is full', 'full-for-good@answering', 11, 'risky/mailbox_full', '552 5.2.2'],
  ['a full mailbox, according to the text only', 'full@exim', 11, 'risky/mailbox_full', '552'],
  ['Postgrey', 'known@greylisting', 12, 'unknown/greylisted', '450 4.2.0'],
  ['a server with a temporary problem', 'later@exim', 12, 'unknown/temporary_failure', '451'],
  ['a relay, for now', 'known@foreign', 12, 'unknown/temporary_failure', '454 4.7.1'],
  ['a blocklist', 'known@blocking', 13, 'unknown/blocked', '554 5.7.1'],
  ['a relay', 'known@foreign-for-good', 13, 'unknown/blocked', '554 5.7.1'],
  ['a relay, according to the text only', 'known@exim-foreign', 13, 'unknown/blocked', '550'],
  ['only TLS, in an obsolete version', 'known@tls-only-old', 13, 'unknown/blocked', '530 5.7.0'],
  ['no SMTPUTF8', 'jörg@ascii', 13, 'unknown/smtputf8_unsupported'],
  ['a missing mailbox', 'missing@postfix', 14, 'invalid/mailbox_not_found', '550 5.1.1'],
  ['a missing mailbox over TLS', 'missing@tls-only', 14, 'invalid/mailbox_not_found', '550 5.1.1'],
  ['a missing mailbox, according to the text only', 'missing@exim', 14, 'invalid/mailbox_not_found', '550'],
  [
    'a missing mailbox with a name outside ASCII',
    'jürg@postfix',
    14,
    'invalid/mailbox_not_found',
    '550 5.1.1',
  ],
  ['a disabled mailbox', 'disabled@answering', 14, 'invalid/mailbox_disabled', '550 5.2.1'],
  ['a domain that accepts everything', 'missing@catch-all', 15, 'risky/catch_all', '250 2.1.5'],
  ['a domain that accepts everything, at Exim', 'missing@exim-catch-all', 15, 'risky/catch_all', '250'],
  [
    'a name outside ASCII at a domain that accepts everything',
    'jürg@catch-all',
    15,
    'risky/catch_all',
    '250 2.1.5',
  ],

  ['a mailbox', 'known@postfix', 17, 'valid/accepted', '250 2.1.5'],
  ['a mailbox at Exim', 'known@exim', 17, 'valid/accepted', '250'],
  ['a mailbox with a name outside ASCII', 'jörg@postfix', 17, 'valid/accepted', '250 2.1.5'],
  ['a mailbox with a name outside ASCII, at Exim', 'jörg@exim', 17, 'valid/accepted', '250'],
  ['a domain with a name outside ASCII', 'jörg@bücher', 17, 'valid/accepted', '250 2.1.5'],
  ['only TLS', 'known@tls-only', 17, 'valid/accepted', '250 2.1.5'],
  ['TLS that fails and is not required', 'known@tls-old', 17, 'valid/accepted', '250 2.1.5'],
  ['no pipelining', 'known@one-at-a-time', 17, 'valid/accepted', '250 2.1.5'],
  ['a greeting after three seconds', 'known@slow-greeting', 17, 'valid/accepted', '250 2.1.5'],
  ['postscreen, which greets after six seconds', 'known@postscreen', 17, 'valid/accepted', '250 2.1.5'],
  ['no MX, but an address', 'known@implicit', 17, 'valid/accepted', '250 2.1.5'],
  ['a domain that is an alias', 'known@alias', 17, 'valid/accepted', '250 2.1.5'],
  ['an MX that is an alias', 'known@mx-is-alias', 17, 'valid/accepted', '250 2.1.5'],
  ['a first MX that is down', 'known@first-down', 17, 'valid/accepted', '250 2.1.5'],
  ['more MX records than a datagram holds', 'known@many', 17, 'valid/accepted', '250 2.1.5'],
]

const fullAddress = (address: string): string => `${address}.example.net`

/** The verdicts of a server or a resolver that was too slow. A busy machine makes every server slow at times. */
const tooSlow = new Set(['unknown/timeout', 'unknown/no_connect', 'unknown/dns_error'])
const attemptsMax = 5

/** Asks again after a verdict of a slow server, as callers should, unless this verdict is expected. The time limits are those of production. */
const askAgainIfSlow = async (asking: Validation, address: string, expected: string): Promise<Judged> => {
  for (let attempt = 1; ; attempt++) {
    const judged = await asking.ask(address)
    const isSlow = judged.verdict !== expected && tooSlow.has(judged.verdict)
    if (!isSlow || attempt === attemptsMax) return judged
  }
}

describe.concurrent('against real servers', () => {
  for (const [what, address, row, verdict, found = null] of table)
    test(`${what} (${address}): row ${row}, ${verdict}`, async () => {
      const judged = await askAgainIfSlow(validation, fullAddress(address), verdict)
      expect({ row: judged.row, verdict: judged.verdict, found: judged.reply ?? judged.dnsCode }).toEqual({
        row,
        verdict,
        found,
      })
    })
})

describe('a sender with an unknown host name', () => {
  test.each([
    ['strict-helo', '450 4.7.1'],
    ['strict-sender', '450 4.1.8'],
  ])('is temporarily refused by %s, for every recipient: row 12', async (domain, reply) => {
    const unknown = 'no-such-host.example.net'
    const asking = await openOwn({ helo: unknown, mailFrom: `sender@${unknown}`, patient: true })
    for (const name of [known, 'missing'])
      expect(await asking.ask(fullAddress(`${name}@${domain}`))).toMatchObject({
        row: 12,
        verdict: 'unknown/temporary_failure',
        reply,
        retryAfter: 900,
      })
  })
})

/** Retries until the deferral is over, and returns the verdict of the next call. */
const retried = async (asking: Validation, address: string): Promise<Judged> => {
  for (let retries = 0; retries < retriesMax; retries++) {
    await sleep(retryEveryMs)
    if ((await asking.runRetries()).some((learned) => learned)) break
  }
  return asking.ask(address)
}
/** Postfix delays its answers after ten refusals in a session. */
const retriesMax = 9
const retryEveryMs = (2 * greylistedSeconds * 1_000) / retriesMax

describe('a mailbox that was deferred', () => {
  test("by Postgrey gets the retry's verdict: row 17", async () => {
    const asking = await openOwn({ mailFrom: 'first@sender.example.net', patient: true })
    const address = fullAddress('known@greylisting')
    expect(await asking.ask(address)).toMatchObject({ row: 12, retryAfter: 300, cached: false })
    expect(await retried(asking, address)).toMatchObject({
      row: 17,
      verdict: 'valid/accepted',
      reply: '250 2.1.5',
      cached: true,
    })
  })

  test('by a Postgrey that also defers missing mailboxes: row 17, because the retry included the random recipient', async () => {
    const asking = await openOwn({ mailFrom: 'first@sender.example.net', patient: true })
    const address = fullAddress('known@greylisting-all')
    expect(await asking.ask(address)).toMatchObject({ row: 12, retryAfter: 300 })
    expect(await retried(asking, address)).toMatchObject({
      row: 17,
      verdict: 'valid/accepted',
      reply: '250 2.1.5',
      catchAll: false,
      cached: true,
    })
  })

  test('by Postgrey gets the server’s verdict when it is asked again: row 17', async () => {
    const asking = await openOwn({ mailFrom: 'second@sender.example.net', patient: true })
    const address = fullAddress('known@greylisting-all')
    expect(await asking.ask(address)).toMatchObject({ row: 12, verdict: 'unknown/greylisted' })
    await sleep(2 * greylistedSeconds * 1_000)
    expect(await asking.ask(address)).toMatchObject({ row: 17, verdict: 'valid/accepted', cached: false })
  })

  test('by a Postgrey that also defers missing mailboxes is found to be missing at the second attempt: row 14', async () => {
    const asking = await openOwn({ mailFrom: 'third@sender.example.net', patient: true })
    const address = fullAddress('missing@greylisting-all')
    expect(await asking.ask(address)).toMatchObject({ row: 12, verdict: 'unknown/greylisted' })
    await sleep(2 * greylistedSeconds * 1_000)
    expect(await asking.ask(address)).toMatchObject({ row: 14, reply: '550 5.1.1' })
  })

  test('by postscreen, which expects a client to connect again: row 17', async () => {
    const asking = await openOwn({ patient: true })
    const address = fullAddress('known@postscreen-deep')
    expect(await asking.ask(address)).toMatchObject({
      row: 12,
      verdict: 'unknown/temporary_failure',
      reply: '450 4.3.2',
      retryAfter: 900,
    })
    expect(await retried(asking, address)).toMatchObject({ row: 17, cached: true })
  })
})

describe('many simultaneous addresses at one host', () => {
  const numbers = Array.from({ length: knownMax }, (_, n) => n)
  const askAll = async (domain: string, { missingMax = knownMax } = {}) => {
    const asking = await openValidation({ ...hosts, patient: true })
    const judge = async (name: string): Promise<string> => {
      const { row, verdict, reply } = await asking.ask(fullAddress(`${name}@${domain}`))
      return `${row} ${verdict} ${reply}`
    }
    const [present, missing] = await Promise.all([
      Promise.all(numbers.map((n) => judge(`${known}-${n}`))),
      Promise.all(Array.from({ length: missingMax }, (_, n) => judge(`missing-${n}`))),
    ])
    await asking.close()
    return { present: [...new Set(present)], missing: [...new Set(missing)] }
  }
  /** How many recipients Postfix refused in each session, once all sessions have ended. */
  const refusalsPerSession = async (name: string): Promise<number[]> => {
    const endings = async (): Promise<string[]> =>
      (await hosts.postfix.log())
        .split('\n')
        .filter((line) => line.includes(`postfix/${name}/smtpd`) && line.includes(': disconnect from'))
    await until(
      'Postfix has seen every session end',
      async () => (await endings()).length === (await hosts.postfix.connections(name)),
    )
    return (await endings()).map((line) => {
      // Postfix logs the accepted and the requested recipients if it refused some, and no numbers for a session without
      // recipients.
      const [, accepted = 0, asked = accepted] = / rcpt=(\d+)(?:\/(\d+))?/.exec(line) ?? []
      return Number(asked) - Number(accepted)
    })
  }
  const right = {
    present: ['17 valid/accepted 250 2.1.5'],
    missing: ['14 invalid/mailbox_not_found 550 5.1.1'],
  }

  test('get their own verdicts, in a few sessions, and Postfix never ends a session because of its errors', async () => {
    expect(await askAll('busy', { missingMax: 75 })).toEqual(right)
    const refusals = await refusalsPerSession('busy')
    expect(refusals.length).toBeLessThanOrEqual(20)
    // From the eleventh refusal on, Postfix delays answers by a second.
    expect(Math.max(...refusals)).toBeLessThanOrEqual(10)
    expect(await hosts.postfix.log()).not.toMatch(/too many errors/)
  })

  test('get the same results without pipelining', async () => {
    expect(await askAll('one-at-a-time')).toEqual(right)
  })

  test('get the same results from Exim, which ends a session after ten commands without mail', async () => {
    expect(await askAll('exim')).toEqual({
      present: ['17 valid/accepted 250'],
      missing: ['14 invalid/mailbox_not_found 550'],
    })
  })

  test('get the same results from a server that allows a single connection at a time', async () => {
    expect(await askAll('one-connection')).toEqual(right)
  })

  test('at a server that defers all recipients are all deferred, with at most ten in a session', async () => {
    const asking = await openValidation({ ...hosts, helo: 'no-such-host.example.net', patient: true })
    const judged = await Promise.all(numbers.map((n) => asking.ask(fullAddress(`${known}-${n}@put-off`))))
    await asking.close()
    expect([...new Set(judged.map(({ reply }) => reply))]).toEqual(['450 4.7.1'])
    expect(Math.max(...(await refusalsPerSession('put-off')))).toBeLessThanOrEqual(10)
  })

  test('at a server that allows ten recipients a minute get the right verdict or a less certain one', async () => {
    const { present, missing } = await askAll('ten-recipients')
    const notNow = '12 unknown/temporary_failure 450 4.7.1'
    const notNowOfNobody = '16 risky/catch_all_undetermined 250 2.1.5'
    expect([...right.present, notNowOfNobody, notNow]).toEqual(expect.arrayContaining(present))
    expect([...right.missing, notNow]).toEqual(expect.arrayContaining(missing))
  })
})

test('a host on loopback is not contacted unless SMTP_ALLOW contains its address: row 6, and no connection', async () => {
  const address = fullAddress('known@unwanted')
  const strict = await openOwn({ allow: [] })
  expect(await strict.ask(address)).toMatchObject({ row: 6, verdict: 'invalid/mx_unroutable', reply: null })
  expect(strict.status().addresses).toBe(0)
  const patient = await openOwn({ patient: true })
  expect(await patient.ask(address)).toMatchObject({ row: 17 })
  // Postfix writes its log in another process, and in order.
  await until(
    'Postfix has logged a connection',
    async () => (await hosts.postfix.connections('unwanted')) > 0,
  )
  expect(await hosts.postfix.connections('unwanted')).toBe(1)
})

test('mail servers never received a message', async () => {
  const patient = await openOwn({ patient: true })
  await patient.ask(fullAddress('known@second'))
  const said = (await hosts.postfix.log()) + (await hosts.exim.log())
  expect(said).toMatch(/rejected RCPT/)
  expect(said).not.toMatch(/message-id=|queue active|<= /)
  // Postfix counts the commands in each session.
  expect(said).not.toMatch(/ (?:data|bdat)=/)
})
