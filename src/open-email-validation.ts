import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import type { Logger } from 'pino'
import type { AnyCapabilityForm } from './call/form.ts'
import { createCompanies } from './capabilities/email-validation/company/companies.ts'
import { createHomePages } from './capabilities/email-validation/company/home-page.ts'
import { createMailExchangers } from './capabilities/email-validation/dns/mail-exchangers.ts'
import {
  askAgain,
  type EmailValidationObserver,
  emailValidation,
  retrySealPurpose,
} from './capabilities/email-validation/index.ts'
import { createMailboxChecks } from './capabilities/email-validation/mailbox/checks.ts'
import {
  createMailboxProbe,
  type MailboxObserver,
  type MailboxStatus,
} from './capabilities/email-validation/mailbox/probe.ts'
import { type Config, ConfigError } from './config.ts'
import type { Foundation } from './foundation/foundation.ts'
import type { JobQueue } from './jobs/queue.ts'
import { forgottenAtOnceMax, inPortions } from './jobs/retain.ts'
import type { CapabilityJobs } from './jobs/run.ts'
import type { Outside } from './outside.ts'

/** What e-mail validation needs, put together; the same for whoever answers calls and whoever runs jobs. */
export type EmailValidation = {
  readonly form: AnyCapabilityForm
  readonly jobs: CapabilityJobs
  /** For metrics. Null: EMAIL_PROBE is off. */
  mailboxes(): MailboxStatus | null
  close(): Promise<void>
}

const retryQueue = 'mailbox-retry'
const retriesAtOnceMax = 8
const retryExpireSeconds = 60
const userAgent = 'enrichment-ledger'

export const openEmailValidation = (
  { pool, secrets, epochKeys }: Foundation,
  config: Config,
  {
    outside,
    queue,
    logger,
    observe,
  }: {
    outside: Outside
    queue: JobQueue
    logger: Logger
    observe?: EmailValidationObserver & MailboxObserver
  },
): EmailValidation => {
  const exchangers = createMailExchangers({ dns: outside.dns, guard: outside.guard, random: Math.random })
  const probe = config.EMAIL_PROBE === 'on' ? openProbe(config, logger, observe) : null
  const checks = createMailboxChecks(pool)
  const sealer = epochKeys.sealer(retrySealPurpose)
  const companies = createCompanies({
    pool,
    homePages:
      config.COMPANY_HOME_PAGES === 'on'
        ? createHomePages({ fetchPage: outside.fetchPage, userAgent })
        : null,
  })
  const form = emailValidation({
    secrets,
    sealer,
    exchangers,
    mailbox: probe,
    checks,
    companies,
    later: (data, options) => queue.send(retryQueue, data, options),
    clock: Date,
    logger,
    observe,
  })
  return {
    form,
    jobs: {
      scheduled: {
        'forget-mailboxes': { cron: '29 * * * *', run: () => inPortions(forgottenAtOnceMax, checks.forget) },
      },
      queued:
        probe === null
          ? {}
          : {
              [retryQueue]: {
                concurrencyMax: retriesAtOnceMax,
                expireSeconds: retryExpireSeconds,
                run: (data) =>
                  askAgain(
                    {
                      exchangers,
                      mailbox: probe,
                      checks,
                      sealer,
                      clock: Date,
                    },
                    data,
                  ),
              },
            },
    },
    mailboxes: () => probe?.status() ?? null,
    close: async () => probe?.close(),
  }
}

/** This machine's name, where mail servers would take it for one. */
const ownName = (): string =>
  /^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/.test(hostname()) ? hostname() : 'localhost'

const openProbe = (config: Config, logger: Logger, observe: MailboxObserver | undefined) => {
  try {
    return createMailboxProbe({
      port: config.SMTP_PORT,
      helo: config.SMTP_HELO ?? ownName(),
      mailFrom: config.SMTP_MAIL_FROM,
      clock: () => performance.now(),
      random: (size) => randomBytes(size),
      logger,
      observe,
    })
  } catch (error) {
    throw new ConfigError(
      `SMTP_HELO, SMTP_MAIL_FROM: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    )
  }
}
