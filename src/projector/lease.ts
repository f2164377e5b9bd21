import type pg from 'pg'

/**
 * Who may work: a row with an owner, an epoch and an expiry by the database's clock. A session advisory lock is lost behind
 * a transaction pooler; a row is not. The epoch fences whatever the holder writes.
 */
export type Lease = { readonly name: string; readonly owner: string }

export const leaseTtlMs = 10_000
export const leaseRenewMs = 3_000

/** Takes the lease if it is free, expired or already ours. Returns its epoch, a new one for a new holder; else null. */
export const acquireLease = async (
  client: pg.ClientBase | pg.Pool,
  { name, owner }: Lease,
): Promise<bigint | null> => {
  const { rows } = await client.query<{ epoch: string }>(
    `insert into leases as l (name, owner, epoch, expires_at)
     values ($1, $2, 1, now() + $3 * interval '1 ms')
     on conflict (name) do update
        set owner = excluded.owner, expires_at = excluded.expires_at,
            epoch = l.epoch + (l.owner <> excluded.owner)::int
      where l.owner = excluded.owner or l.expires_at < now()
     returning epoch`,
    [name, owner, leaseTtlMs],
  )
  return rows[0] === undefined ? null : BigInt(rows[0].epoch)
}

/** Lets the next holder start at once. */
export const releaseLease = async (
  client: pg.ClientBase | pg.Pool,
  { name, owner }: Lease,
): Promise<void> => {
  await client.query("update leases set expires_at = now() - interval '1 s' where name = $1 and owner = $2", [
    name,
    owner,
  ])
}
