/** E-mail validation as in a real process, with the mail hosts of a test: verdicts and their evidence. */
import pg from 'pg'
import { pino } from 'pino'
import { defaultKeyLimits } from '../../../src/administration/keys/api-keys.ts'
import type { Caller } from '../../../src/call/form.ts'
import {
  createMailExchangers,
  type MailExchangers,
} from '../../../src/capabilities/email-validation/dns/mail-exchangers.ts'
import { emailValidationForm } from '../../../src/capabilities/email-validation/index.ts'
import { createMailboxChecks } from '../../../src/capabilities/email-validation/mailbox/checks.ts'
import {
  createMailboxProbe,
  type MailboxStatus,
} from '../../../src/capabilities/email-validation/mailbox/probe/probe.ts'
import { createRecipientOf } from '../../../src/capabilities/email-validation/mailbox/probe/recipient-of.ts'
import { askAgain, retrySealPurpose } from '../../../src/capabilities/email-validation/mailbox/probe/retry.ts'
import { createDns } from '../../../src/egress/dns.ts'
import { createEgressGuard } from '../../../src/egress/guard.ts'
import { createSecrets } from '../../../src/guard/secrets/secrets.ts'
import { processKeys } from '../../support/epoch-keys.ts'
import { testDatabase } from '../../support/postgres.ts'

export type Judged = {
  /** The row in the decision table. */
  readonly row: number
  readonly verdict: string
  /** The reply that decided the verdict. */
  readonly reply: string | null
  /** The resolver's error, if there was no answer. */
  readonly dnsCode: string | null
  readonly catchAll: boolean | null
  readonly retryAfter: number | null
  readonly cached: boolean
  readonly tookMs: number
}

export type Validation = {
  ask(email: string): Promise<Judged>
  /** Runs the retry jobs that were requested so far. Returns for each job whether it got a result. */
  runRetries(): Promise<boolean[]>
  status(): MailboxStatus
  close(): Promise<void>
}

/** Time limits that a busy machine does not reach. The order of the production limits is kept. */
const patientBounds = {
  connectTimeoutMs: 30_000,
  replyTimeoutMs: 50_000,
  greetingTimeoutMs: 70_000,
  openTimeoutMs: 80_000,
  totalTimeoutMs: 100_000,
}

/**
 * Uses the limits of production. With `patient`, only the time limits are longer, for tests of verdicts that do not depend on time. `allow` has
 * the format of SMTP_ALLOW.
 */
export const openValidation = async ({
  port,
  resolver,
  allow = ['127.0.0.0/8'],
  helo = 'sender.example.net',
  mailFrom = '<>',
  patient = false,
}: {
  port: number
  resolver: string
  allow?: readonly string[]
  helo?: string
  mailFrom?: string
  patient?: boolean
}): Promise<Validation> => {
  const database = await testDatabase()
  const pool = new pg.Pool({ connectionString: database.url, max: 4 })
  // The server can end the last connections together with the database.
  pool.on('error', () => undefined)
  const logger = pino({ level: 'silent' })
  const secrets = createSecrets('a secret of at least thirty-two characters')
  const dns = createDns({ servers: [resolver], clock: performance })
  const { find } = createMailExchangers({ dns, guard: createEgressGuard({ allow }), random: Math.random })
  const mailbox = createMailboxProbe({
    port,
    helo,
    mailFrom,
    logger,
    clock: () => performance.now(),
    recipientOf: createRecipientOf({ hmac: secrets.recipientHmac, clock: Date }),
    bounds: patient ? patientBounds : {},
  })
  const checks = createMailboxChecks(pool)
  const sealer = processKeys({ pool, dir: database.keyDir }).sealer(retrySealPurpose)
  const dnsCodes = new Map<string, string>()
  const retries: string[] = []
  const exchangers: Pick<MailExchangers, 'find'> = {
    find: async (domain) => {
      const found = await find(domain)
      if (found.kind === 'dns_error') dnsCodes.set(domain, found.code)
      return found
    },
  }
  const form = emailValidationForm({
    secrets,
    sealer,
    exchangers,
    mailbox,
    checks,
    clock: Date,
    logger,
    companies: { find: async () => null },
    later: async (data) => void retries.push(data),
  })
  return {
    ask: async (email) => {
      const startedMs = performance.now()
      const read = form.parse({ email })
      if ('refusal' in read) throw new Error('no request')
      const findings = await form.gather(read.input, caller)
      if ('unaffordable' in findings) throw new Error('not paid for')
      const decided = form.decide(findings, read.input)
      if ('refusal' in decided || decided.facts.kind !== 'email_validation') throw new Error('no verdict')
      const { result, facts } = decided
      const { code, enhanced_code: enhanced, catch_all: catchAll } = result.checks.smtp
      return {
        row: facts.decision_row,
        verdict: `${result.status}/${result.sub_status}`,
        reply: code === null ? null : [code, enhanced].filter((part) => part !== null).join(' '),
        dnsCode: dnsCodes.get(result.ascii_domain ?? '') ?? null,
        catchAll,
        retryAfter: result.retry_after,
        cached: result.cached,
        tookMs: Math.round(performance.now() - startedMs),
      }
    },
    runRetries: () => {
      const parts = { exchangers, mailbox, checks, sealer, clock: Date }
      return Promise.all(retries.map((data) => askAgain(parts, data)))
    },
    status: () => mailbox.status(),
    close: async () => {
      await mailbox.close()
      await pool.end()
      await database.drop()
    },
  }
}

/** A caller with the permission and with unlimited credits. */
const caller: Caller = {
  key: {
    keyId: 'key',
    organizationId: 'organization',
    organizationName: 'Organization',
    name: 'a key',
    secretHmac: '',
    last4: '',
    permissions: ['email_validation'],
    limits: defaultKeyLimits,
    allowedCidrs: [],
    createdAt: '2026-01-01T00:00:00.000Z',
    expiresAt: null,
    successorId: null,
    graceUntil: null,
    revokedAt: null,
  },
  atMs: 0,
  requestId: 'request',
  repeated: null,
  reserve: async () => null,
}
