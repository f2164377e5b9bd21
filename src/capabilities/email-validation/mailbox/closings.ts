import type pg from 'pg'
import { InputFault } from '../../../administration/input.ts'
import { appendNext } from '../../../event-log/append-next.ts'
import { eventIdOf } from '../../../event-log/event-id.ts'
import type { EventLog } from '../../../event-log/port.ts'
import { encodeEvent } from '../../../event-log/stored-event.ts'
import { operatorStream } from '../../../events/streams.ts'
import { type MailServer, serversNamed } from './servers.ts'

/**
 * Closing the breaker of a mail server by hand, in every process: breakers are in the memory of the process that asks, and each
 * looks here every few seconds. Closing one costs a few questions to a server that may still refuse: it opens again then.
 */

/** A process that could not look for longer finds the breaker as it was: it closes by itself. */
const heededMs = 60_000
const forgottenMs = 86_400_000
const closingsMax = 1_000

/** The servers of a name or an address whose breaker some process has open. Throws `InputFault` where there is none. */
export const openBreakersOf = async (pool: pg.Pool, typed: string): Promise<readonly MailServer[]> => {
  const server = typed.trim().toLowerCase()
  const found = await serversNamed(pool, server)
  if (found.length === 0) throw new InputFault('server', 'no process knows such a mail server')
  const open = found.filter(({ breaker }) => breaker !== 'closed')
  if (open.length === 0) throw new InputFault('server', 'its breaker is closed in every process')
  return open
}

/**
 * Records that the breakers of a server, by its name or address, are closed by hand, and has every process close them: within
 * seconds. Returns the addresses. Throws as `openBreakersOf`. The same `once` is one act.
 */
export const closeBreakers = async (
  { pool, eventLog }: { readonly pool: pg.Pool; readonly eventLog: Pick<EventLog, 'append' | 'read'> },
  typed: string,
  { actor, once }: { readonly actor: string; readonly once: string },
): Promise<readonly string[]> => {
  const open = await openBreakersOf(pool, typed)
  const addresses = [...new Set(open.map(({ address }) => address))]
  const id = eventIdOf(operatorStream, `mail-server/${once}`, 0)
  await appendNext(eventLog, operatorStream, [
    encodeEvent(
      {
        type: 'MailServerBreakerClosed',
        data: { server: open[0]?.exchange || (open[0]?.address ?? ''), addresses },
      },
      { id, actor, effectiveAt: new Date().toISOString() },
    ),
  ])
  await pool.query(
    `with forgotten as (
       delete from mailbox_closings where asked_at < now() - ${forgottenMs} * interval '1 ms'
     )
     insert into mailbox_closings (closing_id, addresses) values ($1, $2) on conflict do nothing`,
    [id, addresses],
  )
  return addresses
}

/**
 * What a process does with closings: each is heeded once. What was asked before the first look is of breakers that this process
 * did not have.
 */
export const createClosings = (
  pool: pg.Pool,
  close: (addresses: readonly string[]) => void,
): { look(): Promise<void> } => {
  let heeded: ReadonlySet<string> | null = null
  return {
    look: async () => {
      const { rows } = await pool.query<{ closing_id: string; addresses: string[] }>(
        `select closing_id, addresses from mailbox_closings
          where asked_at > now() - ${heededMs} * interval '1 ms' order by asked_at desc limit ${closingsMax}`,
      )
      const before = heeded
      heeded = new Set(rows.map(({ closing_id }) => closing_id))
      if (before !== null)
        for (const { closing_id, addresses } of rows) if (!before.has(closing_id)) close(addresses)
    },
  }
}
