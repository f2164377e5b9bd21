import { hostname } from 'node:os'
import {
  type Capability,
  type CapabilityPorts,
  type ScheduledJob,
  SettingFault,
  usualJobSecondsMax,
} from '../../call/capability.ts'
import { companiesImport, companiesShow } from './company/commands.ts'
import { createCompanies } from './company/companies.ts'
import { createHomePages } from './company/home-page.ts'
import { emailValidationCall } from './contract.ts'
import { emailData } from './data.ts'
import { createMailExchangers } from './dns/mail-exchangers.ts'
import { emailValidationForm } from './form.ts'
import { namedAddressOf } from './gather.ts'
import { listsAge, listsDayMs } from './lists/age.ts'
import { listsRefresh } from './lists/commands.ts'
import { rereadLists } from './lists/inspect.ts'
import { createMailboxChecks, forgottenAtOnceMax } from './mailbox/checks.ts'
import { createMailboxProbe, type MailboxObserver, type MailboxProbe } from './mailbox/probe.ts'
import { createRecipientOf } from './mailbox/recipient-of.ts'
import { askAgain, retrySealPurpose } from './mailbox/retry.ts'
import { meterLists, meterMailboxes, observerOf } from './metrics.ts'
import { readAddress } from './read-address.ts'

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
 * E-mail validation (Spec §4.1): syntax, lists, DNS, then the mailbox's own server, and the company behind the domain.
 * Each kind of evidence is gathered only where those before leave the verdict open.
 */
export const emailValidation: Capability<EmailValidationSettings> = {
  hosts: ['api'],
  calls: [emailValidationCall],
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
          cron: '29 * * * *',
          expireSeconds: usualJobSecondsMax,
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
          logger.info(rereadLists(), 'lists: read again')
          listsMs = undefined
        } catch (error) {
          logger.error({ err: error }, 'lists: the new ones are refused, the old ones keep answering')
        }
      },
      close: async () => {
        await mailbox?.close()
      },
    }
  },
  checks: () => [listsAge()],
  data: emailData,
  commands: [companiesImport, companiesShow, listsRefresh],
  recognizes: ({ secrets }, facts, text) => {
    if (facts.kind !== 'email_validation') return null
    const hmacs = secrets.addressHmacs(namedAddressOf(readAddress(text)))
    return { verdict: hmacs.includes(facts.address_hmac) ? 'yes' : 'no' }
  },
}

/** This machine's name, where mail servers would take it for one. */
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
