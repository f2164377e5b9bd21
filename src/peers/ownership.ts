import type { Peer, ProcessId } from './peer.ts'
import { type Contender, firstFor, hashOf } from './rendezvous.ts'

/** Which of the processes that share the ledgers is to write an organization's. */
export type Ownership = {
  /**
   * From now on these share the ledgers (null: this process), and the first `owners` of them write: those that live longest, so that
   * one that comes or goes changes nothing as long as the others are enough. Gives whether others share them than before.
   */
  share(among: readonly (Peer | null)[], owners: number): boolean
  /** Null: this process. */
  ownerOf(organizationId: string): Peer | null
}

type Sharing = Contender & { readonly peer: Peer | null }

/** Owners that are remembered; above that they are found out anew, which costs under a microsecond each. */
const rememberedMax = 100_000

export const createOwnership = (self: ProcessId): Ownership => {
  let sharing: readonly (Peer | null)[] = []
  let writing: readonly Sharing[] = []
  let withOthers = false
  const remembered = new Map<string, Peer | null>()
  return {
    share: (among, owners) => {
      const changed = !areSame(among, sharing)
      // A process id begins with the time of its start.
      const first = among.toSorted((a, b) => ((a?.id ?? self) < (b?.id ?? self) ? -1 : 1)).slice(0, owners)
      sharing = among
      if (
        areSame(
          first,
          writing.map(({ peer }) => peer),
        )
      )
        return changed
      writing = first.map((peer) => {
        const id = peer?.id ?? self
        return { id, hash: hashOf(id), peer }
      })
      withOthers = first.some((peer) => peer !== null)
      remembered.clear()
      return changed
    },
    ownerOf: (organizationId) => {
      if (!withOthers) return null
      const known = remembered.get(organizationId)
      if (known !== undefined) return known
      const owner = firstFor(organizationId, writing)?.peer ?? null
      if (remembered.size >= rememberedMax) remembered.clear()
      remembered.set(organizationId, owner)
      return owner
    },
  }
}

const areSame = (some: readonly (Peer | null)[], other: readonly (Peer | null)[]): boolean =>
  some.length === other.length && some.every((peer, i) => peer === other[i])
