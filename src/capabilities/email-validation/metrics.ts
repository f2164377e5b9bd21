import type { Meters } from '../../call/capability.ts'
import type { EmailStatus } from '../../events/email-validation.ts'
import { mailboxOutcomes } from './evidence.ts'
import type { EmailValidationObserver } from './gather.ts'
import type { MailboxObserver, MailboxStatus } from './mailbox/probe.ts'

/** Counts verdicts and mailbox checks. A row of the decision table always comes with the same status. */
export const observerOf = (meters: Meters): EmailValidationObserver & MailboxObserver => {
  const verdicts = new Map<number, { readonly status: EmailStatus; count: number }>()
  meters.total(
    {
      name: 'email_verdicts_total',
      help: 'E-mail validations judged, by the row of the decision table that decided',
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
      { name: 'mailbox_checks_total', help: 'Mailboxes asked about, by what came of it' },
      'outcome',
      mailboxOutcomes,
    ),
  }
}

/** `dayMs` is of the lists that count; what it throws leaves the figure out. */
export const meterLists = (meters: Meters, dayMs: () => number): void =>
  meters.gauge(
    {
      name: 'email_lists_age_seconds',
      help: 'Since the day that the oldest list of disposable and free domains in use is of',
    },
    () => {
      try {
        return [{ value: Math.max(0, Date.now() - dayMs()) / 1_000 }]
      } catch {
        return []
      }
    },
  )

/** `status` is null where EMAIL_PROBE is off. */
export const meterMailboxes = (meters: Meters, status: () => MailboxStatus | null): void => {
  const sample = (value: number | undefined) => (value === undefined ? [] : [{ value }])
  meters.total(
    {
      name: 'mailbox_sessions_opened_total',
      help: 'Sessions with mail servers that came as far as a first question',
    },
    () => sample(status()?.sessionsOpened),
  )
  meters.gauge(
    {
      name: 'mailbox_breakers_open',
      help: 'Addresses of mail servers left alone because they refused us or were not there',
    },
    () => sample(status()?.breakersOpen),
  )
}
