import { allOrganizations, type OrganizationRow } from '../../../projections/accounts.ts'
import { formatCredits } from '../../billing/money.ts'
import { type EventLog, type RecordedEvent, StreamMissing } from '../../event-log/port.ts'
import { ledgerStream, organizationOfStream } from '../../events/streams.ts'
import { balanceOf } from '../../ledger/account.ts'
import { CommandRefused } from '../../ledger/commit.ts'
import { verifyLedger } from '../../ledger/verify.ts'
import { catchUp } from '../catch-up.ts'
import { type Command, type CommandContext, organizationParameter, wholeNumber } from '../command.ts'
import type { Foundation } from '../foundation.ts'

const pageMax = 1_000

export const ledgerCommands: readonly Command[] = [
  {
    name: 'ledger export',
    summary: "write an organization's ledger, one event a line (JSON Lines; --json: one array)",
    parameters: [organizationParameter, { name: 'from', help: 'first revision to write (default 0)' }],
    run: async (context, given) => {
      const { eventLog } = await context.foundation()
      const organizationId = given.required('org')
      const from = wholeNumber('from', given.text('from') ?? '0', { min: 0, max: Number.MAX_SAFE_INTEGER })
      const events = await exportLedger(eventLog, { organizationId, from }, context)
      return { json: { organization_id: organizationId, events }, written: true }
    },
  },
  {
    name: 'ledger verify',
    summary: 'recompute the hash chain and the rules of a ledger, or of all; names the first broken event',
    parameters: [{ name: 'org', help: 'of this organization only (default: all)' }],
    run: async (context, given) => {
      const open = await context.foundation()
      const ledgers = []
      for (const organizationId of await organizationsOf(open, given.text('org'), context)) {
        const verdict = await verifyLedger(open.eventLog, organizationId, (events) =>
          context.progress(`${organizationId}: ${events} events`),
        ).catch(missingIsRefused(organizationId))
        ledgers.push({
          organization_id: organizationId,
          ok: verdict.fault === null,
          events: verdict.events,
          digest: verdict.digest,
          balance: formatCredits(balanceOf(verdict.account, Date.now())),
          fault: verdict.fault,
        })
      }
      const ok = ledgers.every((ledger) => ledger.ok)
      return {
        json: { ok, ledgers },
        failed: !ok,
        lines: ledgers.map(({ organization_id, events, digest, fault }) =>
          fault === null
            ? `ok      ${organization_id}  ${events} events, digest ${digest}`
            : `BROKEN  ${organization_id}  revision ${fault.revision}, event ${fault.event_id} (${fault.type}): ${fault.fault}`,
        ),
      }
    },
  },
]

const missingIsRefused =
  (organizationId: string) =>
  (error: unknown): never => {
    throw error instanceof StreamMissing
      ? new CommandRefused(`there is no ledger of ${organizationId}; see "org list"`)
      : error
  }

const organizationsOf = async (
  open: Foundation,
  one: string | undefined,
  { logger }: CommandContext,
): Promise<string[]> => {
  if (one !== undefined) return [one]
  await catchUp(open, logger)
  const { text, values } = allOrganizations()
  const { rows } = await open.pool.query<OrganizationRow>(text, [...values])
  return rows.map(({ organization_id }) => organization_id)
}

const exportLedger = async (
  eventLog: EventLog,
  { organizationId, from }: { organizationId: string; from: number },
  { json, write }: CommandContext,
): Promise<number> => {
  let next = from
  if (json) await write('[')
  for (;;) {
    const page = await eventLog
      .read(ledgerStream(organizationId), { from: next, max: pageMax })
      .catch(missingIsRefused(organizationId))
    const texts = page.map((recorded) => JSON.stringify(exported(recorded)))
    if (texts.length > 0)
      await write(json ? `${next === from ? '' : ','}${texts.join(',')}` : `${texts.join('\n')}\n`)
    next += page.length
    if (page.length < pageMax) break
  }
  if (json) await write(']\n')
  return next - from
}

/** An event with its whole envelope. Data and metadata are parsed: the exact bytes are the event log's. */
const exported = (recorded: RecordedEvent) => ({
  position: recorded.position.toString(),
  stream: recorded.stream,
  revision: recorded.revision,
  event_id: recorded.id,
  type: recorded.type,
  organization_id: organizationOfStream(recorded.stream),
  recorded_at: new Date(recorded.recordedAtMs).toISOString(),
  metadata: JSON.parse(recorded.metadata) as unknown,
  data: JSON.parse(recorded.data) as unknown,
})
