import type pg from 'pg'
import { type ProfileAliasRow, profileBy } from '../../../../projections/profile-cache.ts'
import { unavailableWhenAway } from '../../../call/unavailable.ts'
import { Unavailable } from '../../../event-log/port.ts'

/** What is known of whom an identifier leads to, read in one moment. */
export type LookUp = {
  readonly suppressed: boolean
  readonly row: ProfileAliasRow | undefined
  /** Of the row's payload; null where it was destroyed. */
  readonly sealedKey: string | null
}

type LookUps = {
  /** By the keyed HMAC of an identifier, as of some moment after this was called. */
  of(hmac: string): Promise<LookUp>
}

/** Identifiers of one statement. */
const batchMax = 64
/** Statements under way: the second is for whoever comes while the first one is. */
const underWayMax = 2
/** Statements that wait; whoever would need one more is told to come back. */
const waitingMax = 64

type Batch = {
  readonly hmacs: Map<string, number>
  readonly rows: Promise<readonly Row[]>
  send(): void
  fail(error: unknown): void
}
type Row = Partial<ProfileAliasRow> & { suppressed: boolean; sealed_key: string | null }

/** The look-ups of the lateral query are by index whatever the planner thinks of an array's length. */
const text = `
  select exists (select 1 from profile_suppressions s where s.hmac = asked.hmac) as suppressed, p.*, k.sealed_key
    from unnest($1::text[]) with ordinality as asked (hmac, n)
    left join lateral (${profileBy('asked.hmac')}) p on true
    left join lateral (select sealed_key from profile_keys
                        where key_id = p.key_id and subject_id = p.subject_id limit 1) k on true
   order by asked.n`

/**
 * Most calls end with a look-up, so they share statements: while as many as may be are under way, whoever asks is gathered
 * for the next one. Nobody waits for company.
 */
export const createLookUps = (pool: pg.Pool): LookUps => {
  const waiting: Batch[] = []
  let underWay = 0

  /** Prepared. The projection's columns are named, so that its switch to another table changes nothing. */
  const ask = async (hmacs: readonly string[]): Promise<readonly Row[]> => {
    const { rows } = await pool
      .query<Row>({ name: 'profile-look-ups', text, values: [hmacs] })
      .catch(unavailableWhenAway)
    return rows
  }

  const sendNext = (): void => {
    if (underWay >= underWayMax) return
    waiting.shift()?.send()
  }

  const openBatch = (): Batch => {
    const hmacs = new Map<string, number>()
    const { promise, resolve, reject } = Promise.withResolvers<readonly Row[]>()
    const send = (): void => {
      underWay += 1
      void ask([...hmacs.keys()])
        .then(resolve, (error: unknown) => {
          reject(error)
          // Who waits for a database that is away would only be told so later.
          if (error instanceof Unavailable) for (const { fail } of waiting.splice(0)) fail(error)
        })
        .finally(() => {
          underWay -= 1
          sendNext()
        })
    }
    if (waiting.length >= waitingMax) throw new Unavailable('too many profile look-ups are waiting')
    const batch = { hmacs, rows: promise, send, fail: reject }
    waiting.push(batch)
    // What asks in this turn of the loop is gathered too.
    setImmediate(sendNext)
    return batch
  }

  return {
    of: async (hmac) => {
      const last = waiting.at(-1)
      const batch = last !== undefined && last.hmacs.size < batchMax ? last : openBatch()
      const index = batch.hmacs.get(hmac) ?? batch.hmacs.size
      batch.hmacs.set(hmac, index)
      const row = (await batch.rows)[index]
      return {
        suppressed: row?.suppressed === true,
        row: row?.subject_id ? (row as ProfileAliasRow) : undefined,
        sealedKey: row?.sealed_key ?? null,
      }
    },
  }
}
