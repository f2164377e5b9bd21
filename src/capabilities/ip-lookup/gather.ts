import type { ParsedAddress } from '../../egress/address.ts'
import type { Secrets } from '../../guard/secrets/secrets.ts'
import type { IpFindings } from './decide.ts'
import type { GeoDatabase } from './geo-database.ts'

export type IpLookupParts = {
  readonly geo: Pick<GeoDatabase, 'lookup'>
  readonly secrets: Pick<Secrets, 'addressHmac'>
}

/** Asks the database in memory. Addresses that no one on the Internet has get no location. */
export const gather = ({ geo, secrets }: IpLookupParts, address: ParsedAddress): IpFindings => ({
  location: address.reachable ? geo.lookup(address.lookup) : null,
  addressHmac: secrets.addressHmac(address.canonical),
})
