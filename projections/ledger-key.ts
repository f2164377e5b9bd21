import { hash } from 'node:crypto'

/** The number of a ledger: the first eight bytes of the SHA-256 of its organization's id. What `ledger_key` gives in the database. */
export const ledgerKeyOf = (organizationId: string): bigint =>
  Buffer.from(hash('sha256', organizationId, 'hex').slice(0, 16), 'hex').readBigInt64BE()

/** Statements that make `ledger_key`, by which a query finds the lines of an organization, give such a number. */
export const ledgerKeyAsNumber = (): string[] =>
  ledgerKeyFunction(
    'bigint',
    `('x' || left(encode(sha256(convert_to(organization_id, 'UTF8')), 'hex'), 16))::bit(64)::bigint`,
  )

/** The same where lines name the organization itself. */
export const ledgerKeyAsName = (): string[] => ledgerKeyFunction('text', 'organization_id')

/** One that gives the same type is not dropped: queries that are planned already go on with it. */
const ledgerKeyFunction = (type: string, value: string): string[] => [
  `do $$ begin
     if pg_get_function_result(to_regprocedure('ledger_key(text)')) <> '${type}' then
       drop function ledger_key(text);
     end if;
   end $$`,
  `create or replace function ledger_key(organization_id text) returns ${type} language sql immutable parallel safe
     return ${value}`,
]
