import { stat } from 'node:fs/promises'
import { hostname } from 'node:os'
import type pg from 'pg'
import {
  type Capability,
  type CapabilityPorts,
  type Meters,
  type ScheduledJob,
  SettingFault,
} from '../../call/capability.ts'
import type { DataSource } from '../../call/data-source.ts'
import type { CapabilityForm } from '../../call/form.ts'
import type { EmailStatus } from '../../events/email-validation.ts'
import { createCompanies } from './company/companies.ts'
import { createHomePages } from './company/home-page.ts'
import { type EmailValidationResult, parseEmailRequest } from './contract.ts'
import { decide, type EmailFindings } from './decide.ts'
import { createMailExchangers } from './dns/mail-exchangers.ts'
import { document, emailValidationCall } from './document.ts'
import { mailboxOutcomes } from './evidence.ts'
import {
  type EmailInput,
  type EmailValidationObserver,
  type EmailValidationParts,
  gather,
  namedAddressOf,
} from './gather.ts'
import { listsAge, listsAgeDaysMax, listsDayMs, listsRemedy } from './lists/age.ts'
import { listPath, readRefreshed, vendoredListFolder } from './lists/file.ts'
import { rereadLists } from './lists/inspect.ts'
import { vendoredDomains } from './lists/listed-domains.ts'
import { disposableLists } from './lists/packages.ts'
import { createMailboxChecks, forgottenAtOnceMax } from './mailbox/checks.ts'
import {
  createMailboxProbe,
  type MailboxObserver,
  type MailboxProbe,
  type MailboxStatus,
} from './mailbox/probe/probe.ts'
import { createRecipientOf } from './mailbox/probe/recipient-of.ts'
import { askAgain, retrySealPurpose } from './mailbox/probe/retry.ts'
import { readAddress } from './read-address.ts'
import { rehearsal } from './rehearsal.ts'

/** A row of the decision table always has the same status, so verdicts are counted by row alone. */
const observerOf = (meters: Meters): EmailValidationObserver & MailboxObserver => {
  const verdicts = new Map<number, { readonly status: EmailStatus; count: number }>()
  meters.total(
    {
      name: 'email_verdicts_total',
      help: 'E-mail validations, by the decisive row of the decision table',
      labels: ['row', 'status'],
    },
    () =>
      [...verdicts].map(([row, { status, count }]) => ({
        labels: { row: String(row), status },
        value: count,
      })),
  )
  return {
    verdict: (row, status) => {
      const known = verdicts.get(row)
      if (known === undefined) verdicts.set(row, { status, count: 1 })
      else known.count++
    },
    mailboxChecked: meters.words(
      { name: 'mailbox_checks_total', help: 'Mailbox checks, by result' },
      'outcome',
      mailboxOutcomes,
    ),
  }
}

/** `dayMs` returns the date of the lists in use. If it throws, the metric has no value. */
const meterLists = (meters: Meters, dayMs: () => number): void =>
  meters.gauge(
    {
      name: 'email_lists_age_seconds',
      help: 'Age of the oldest list of disposable or free-mail domains in use',
    },
    () => [{ value: Math.max(0, Date.now() - dayMs()) / 1_000 }],
  )

/** `status` is null if EMAIL_PROBE is off. */
const meterMailboxes = (meters: Meters, status: () => MailboxStatus | null): void => {
  const sample = (value: number | undefined) => (value === undefined ? [] : [{ value }])
  meters.total(
    {
      name: 'mailbox_sessions_opened_total',
      help: 'Sessions opened with mail servers',
    },
    () => sample(status()?.sessionsOpened),
  )
  meters.gauge(
    {
      name: 'mailbox_breakers_open',
      help: 'Addresses of mail servers not contacted for now because they refused us or could not be reached',
    },
    () => sample(status()?.breakersOpen),
  )
}

export const emailValidationForm = (
  parts: EmailValidationParts,
): CapabilityForm<EmailInput, EmailFindings, EmailValidationResult> => ({
  ...emailValidationCall,
  perSecond: (limits) => limits.email_validations_per_second,
  parse: (body) => {
    const read = parseEmailRequest(body)
    if ('refusal' in read) return read
    return { input: { ...read.input, ...readAddress(read.input.email) } }
  },
  rehearse: rehearsal(parts),
  gather: (input, caller) => gather(parts, input, caller),
  decide,
  billed: (result, lines) => ({
    ...result,
    billing: {
      billable: lines.length > 0,
      validation_credits: lines.find(({ sku }) => sku === 'email_validation')?.amount ?? '0',
      company_credits: lines.find(({ sku }) => sku === 'company_data')?.amount ?? '0',
    },
  }),
})

const grouped = (value: number): string => value.toLocaleString('en-US')

/** The maximum number of companies that are counted. For more, PostgreSQL's estimate is shown. */
const countedMax = 100_000

const emailData = async ({ pool }: { readonly pool: pg.Pool }): Promise<readonly DataSource[]> => [
  await domainList('disposable', {
    name: 'Disposable domains',
    packages: Object.keys(disposableLists).join(', '),
  }),
  await domainList('free', { name: 'Free-mail domains', packages: 'email-providers' }),
  await companies(pool),
]

const domainList = async (
  list: 'disposable' | 'free',
  { name, packages }: { readonly name: string; readonly packages: string },
): Promise<DataSource> => ({
  name,
  place: 'host',
  imported: null,
  version: null,
  asOf: new Date(listsDayMs()),
  ageDaysMax: listsAgeDaysMax,
  remedy: listsRemedy,
  from:
    readRefreshed(vendoredListFolder, list) === null
      ? `the ${packages.includes(',') ? 'packages' : 'package'} ${packages}`
      : `"lists refresh", written ${(await stat(listPath(vendoredListFolder, list))).mtime.toISOString().slice(0, 10)}`,
  holds: `${grouped(vendoredDomains().raw[list].size)} domains`,
})

const companies = async (pool: pg.Pool): Promise<DataSource> => {
  const { rows } = await pool.query<{ n: number; newest: Date | null; sources: string | null; all: string }>(
    `select count(*)::int as n, max(source_updated_at) as newest,
            string_agg(distinct left(source, 100), ', ') as sources,
            (select greatest(reltuples, 0)::bigint::text from pg_class where oid = 'companies'::regclass) as all
       from (select source, source_updated_at from companies limit $1) c`,
    [countedMax + 1],
  )
  const { n, newest, sources, all } = rows[0] ?? { n: 0, newest: null, sources: null, all: '0' }
  return {
    name: 'Companies',
    place: 'installation',
    imported: 'companies',
    version: null,
    ageDaysMax: null,
    from: sources ?? 'nothing was imported',
    holds:
      n > countedMax ? `about ${grouped(Math.max(n, Number(all)))} companies` : `${grouped(n)} companies`,
    asOf: newest,
    remedy: n === 0 ? 'Import a file with "companies import". Until then, no company is found.' : null,
  }
}

type EmailValidationSettings = {
  readonly EMAIL_PROBE: 'on' | 'off'
  readonly SMTP_PORT: number
  readonly SMTP_HELO?: string | undefined
  readonly SMTP_MAIL_FROM: string
  readonly COMPANY_HOME_PAGES: 'on' | 'off'
}

const retryQueue = 'mailbox-retry'
const retriesAtOnceMax = 8
const retryExpireSeconds = 60
const userAgent = 'enrichment-ledger'

/**
 * Checks an address by syntax, lists, DNS and its mail server, and finds the company to which its domain belongs (Spec §4.1). The next kind
 * of evidence is gathered only if the previous kinds leave the verdict open.
 */
export const emailValidation: Capability<EmailValidationSettings> = {
  hosts: ['api'],
  document,
  open: (ports) => {
    const { pool, secrets, epochKeys, settings, queue, outside, meters, logger } = ports
    const observe = observerOf(meters)
    const exchangers = createMailExchangers({
      dns: outside.dns,
      guard: outside.mailGuard,
      random: Math.random,
    })
    const mailbox = settings.EMAIL_PROBE === 'on' ? openProbe(ports, observe) : null
    const checks = createMailboxChecks(pool)
    const sealer = epochKeys.sealer(retrySealPurpose)
    const fetchPage = outside.fetchPage
    meterMailboxes(meters, () => mailbox?.status() ?? null)
    let listsMs: number | undefined
    meterLists(meters, () => (listsMs ??= listsDayMs()))
    return {
      forms: [
        emailValidationForm({
          secrets,
          sealer,
          exchangers,
          mailbox,
          checks,
          companies: createCompanies({
            pool,
            homePages:
              settings.COMPANY_HOME_PAGES === 'on' ? createHomePages({ fetchPage, userAgent }) : null,
          }),
          later: (data, options) => queue.send(retryQueue, data, options),
          clock: Date,
          logger,
          observe,
        }),
      ],
      jobs: {
        'forget-mailboxes': {
          purpose: 'deletes old results of mailbox checks',
          cron: '29 * * * *',
          run: checks.forget,
          portionMax: forgottenAtOnceMax,
        } satisfies ScheduledJob,
        ...(mailbox === null
          ? {}
          : {
              [retryQueue]: {
                concurrencyMax: retriesAtOnceMax,
                expireSeconds: retryExpireSeconds,
                run: (data: string) => askAgain({ exchangers, mailbox, checks, sealer, clock: Date }, data),
              },
            }),
      },
      reload: async () => {
        try {
          logger.info(rereadLists(), 'lists: reloaded')
          listsMs = undefined
        } catch (error) {
          logger.error(
            { err: error },
            'lists: the new lists were rejected, and the previous ones stay in use',
          )
        }
      },
      close: async () => {
        await mailbox?.close()
      },
    }
  },
  checks: () => [listsAge()],
  data: emailData,
  recognizes: ({ secrets }, text) => {
    const hmac = secrets.addressHmac(namedAddressOf(readAddress(text)))
    return (facts) =>
      facts.kind === 'email_validation' ? { verdict: hmac === facts.address_hmac ? 'yes' : 'no' } : null
  },
}

/** Returns this machine's name if it has the form of a host name that mail servers accept. */
const ownName = (): string =>
  /^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/.test(hostname()) ? hostname() : 'localhost'

const openProbe = (
  {
    secrets,
    settings,
    logger,
  }: Pick<CapabilityPorts<EmailValidationSettings>, 'secrets' | 'settings' | 'logger'>,
  observe: MailboxObserver,
): MailboxProbe => {
  try {
    return createMailboxProbe({
      port: settings.SMTP_PORT,
      helo: settings.SMTP_HELO ?? ownName(),
      mailFrom: settings.SMTP_MAIL_FROM,
      clock: () => performance.now(),
      recipientOf: createRecipientOf({ hmac: secrets.recipientHmac, clock: Date }),
      logger,
      observe,
    })
  } catch (cause) {
    throw new SettingFault(
      `SMTP_HELO, SMTP_MAIL_FROM: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    )
  }
}
