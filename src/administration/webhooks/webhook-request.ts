import { isIP } from 'node:net'
import type { EgressGuard } from '../../egress/guard.ts'
import { type WebhookEvent, webhookEvent } from '../../events/webhooks.ts'
import type { Sending } from '../../webhooks/send.ts'
import { InputFault } from '../input.ts'

/**
 * How messages are sent, and to which addresses. `operatorGuard` decides for the operator's own webhooks, and `guard` for all other
 * webhooks.
 */
export type WebhookOutside = Sending['outside'] & {
  readonly guard: EgressGuard
  readonly operatorGuard: EgressGuard
}

const urlCharsMax = 2_048
/** RFC 1035 §2.3.4. */
const hostCharsMax = 253
const everyone: readonly WebhookEvent[] = ['checkpoint']

/** Parses event names. Throws `InputFault` for an unknown name, or if the operator's own webhook would receive events of organizations. */
export const webhookEventsOf = (names: readonly string[], organizationId: string | null): WebhookEvent[] => {
  const events = names.map((name) => {
    const read = webhookEvent.safeParse(name)
    if (read.success) return read.data
    throw new InputFault(
      'events',
      `there is no event "${name}"; the events are ${webhookEvent.options.join(', ')}`,
    )
  })
  if (events.length === 0) throw new InputFault('events', 'give at least one event')
  const others = events.filter((event) => !everyone.includes(event))
  if (organizationId === null && others.length > 0)
    throw new InputFault(
      'events',
      `${others.join(', ')} concern one organization: give --org; without it, only ${everyone.join(', ')} is possible`,
    )
  return [...new Set(events)]
}

/**
 * Parses a URL for messages: https on port 443 of a public host. If the guard exempts addresses, http and other ports are allowed, too.
 * Each message is checked again when it is sent, because the host's address can change. Throws `InputFault`.
 */
export const webhookUrlOf = (text: string, guard: EgressGuard): URL => {
  const { exemptsAny: exemptions } = guard
  const url = URL.parse(text.trim())
  const refuse = (why: string): never => {
    throw new InputFault('url', why)
  }
  // The length is that of the stored form, in which non-ASCII characters are longer.
  if (url === null || url.href.length > urlCharsMax || url.hostname.length > hostCharsMax)
    return refuse(
      `it must be a whole URL of at most ${urlCharsMax} characters, such as https://example.com/hooks`,
    )
  if (url.username !== '' || url.password !== '')
    return refuse(
      'it must not contain a user name or password: messages are signed, and you can put a secret into the path',
    )
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && exemptions))
    return refuse('it must begin with https://')
  if (url.port !== '' && !exemptions)
    return refuse(`port ${url.port} is not allowed: messages are sent to port 443`)
  const host = url.hostname.replace(/^\[|\]$/g, '')
  // RFC 6761 reserves these names for the machine itself.
  if (/(^|\.)localhost\.?$/.test(host) && !exemptions) return refuse(`${host} is not a public host`)
  if (isIP(host) !== 0 && !guard.mayDial(host)) return refuse(`${host} is not a public Internet address`)
  url.hash = ''
  return url
}
