import type { Peer, ProcessId } from './peer.ts'

export type PassedByFor = 'silent' | 'not understood'

/** What the ledger asks of its peers. Every function is cheap: they are called for each command. */
export type Owners = {
  /**
   * Resolves when it is known who else lives. Null: it is known, and nothing has to be waited for. Never rejects.
   */
  opening(): Promise<void> | null
  /** Whether any other process may send commands here, or take some. */
  others(): boolean
  /** The process that is to write an organization's ledger; null: this one. */
  ownerOf(organizationId: string): Peer | null
  /** It is no owner for a while: it does not answer, or not so that it can be understood. */
  passBy(id: ProcessId, why: PassedByFor): void
}

/** A process on its own. */
export const noOwners: Owners = {
  opening: () => null,
  others: () => false,
  ownerOf: () => null,
  passBy: () => undefined,
}
