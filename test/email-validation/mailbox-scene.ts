/** A mailbox probe, and a scripted mail server on loopback. */
import { afterEach, vi } from 'vitest'
import type { EmailAddress, MailboxEvidence } from '../../src/capabilities/email-validation/evidence.ts'
import {
  createMailboxProbe,
  type MailboxBounds,
  type MailboxProbe,
} from '../../src/capabilities/email-validation/mailbox/probe/probe.ts'
import { createRecipientOf } from '../../src/capabilities/email-validation/mailbox/probe/recipient-of.ts'
import { shortHmac } from '../../src/guard/secrets/secrets.ts'
import { type SmtpScript, type SmtpServer, startSmtpServer } from '../support/smtp-servers.ts'

export const ends: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

export const addressOf = (localPart: string, domain = 'example.com'): EmailAddress => ({
  normalized: `${localPart}@${domain}`,
  localPart,
  domain,
  asciiDomain: domain,
  // biome-ignore lint/suspicious/noControlCharactersInRegex: all of ASCII
  smtputf8: !/^[\x00-\x7f]*$/.test(localPart),
  quoted: localPart.startsWith('"'),
  domainLiteral: false,
})

export const loopback = { targets: [{ exchange: 'mx.example.com', addresses: ['127.0.0.1'] }] }
export type Scene = {
  server: SmtpServer
  probe: MailboxProbe
  ask: (localPart: string) => Promise<MailboxEvidence>
}

export const probeAt = (
  port: number,
  bounds: Partial<MailboxBounds> = {},
  more: { now?: () => number; helo?: string; mailFrom?: string } = {},
) => {
  const logger = { debug: vi.fn() }
  const probe = createMailboxProbe({
    port,
    helo: more.helo ?? 'probe.example.net',
    mailFrom: more.mailFrom ?? '<>',
    clock: more.now ?? Date.now,
    recipientOf: createRecipientOf({ hmac: shortHmac(Buffer.alloc(32, 7)), clock: Date }),
    logger,
    bounds: { checksPerSecond: 10_000, checksBurst: 10_000, ...bounds },
  })
  ends.push(() => probe.close())
  return { probe, logger }
}

export const scene = async (
  script: SmtpScript = {},
  bounds: Partial<MailboxBounds> = {},
  more: { now?: () => number } = {},
): Promise<Scene> => {
  const server = await startSmtpServer(script)
  ends.push(() => server.close())
  const { probe } = probeAt(server.port, bounds, more)
  return { server, probe, ask: (localPart) => probe.probe(addressOf(localPart), loopback) }
}

/** A server that accepts only the mailbox `known`. */
export const only =
  (known: string, refusal = '550 5.1.1 no such user'): NonNullable<SmtpScript['recipient']> =>
  (mailbox) =>
    mailbox === `${known}@example.com` ? '250 2.1.5 ok' : refusal
