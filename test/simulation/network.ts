/**
 * How the processes of a simulation reach each other and whom they take for the owner of a ledger: a table that changes, of
 * which each has a view of its own, and connections that lose, delay, double and reorder messages, and end. What was
 * asked on a connection may still arrive after its end, and the other side may learn of the end much later.
 */
import type { Owners } from '../../src/peers/owners.ts'
import type { AnswerPeer, Asker, Peer } from '../../src/peers/peer.ts'
import type { SeededRandom } from '../ip-lookup/seeded-random.ts'
import { time } from './time.ts'

/** A process as its peers know it. */
export type Station = {
  readonly id: string
  alive: boolean
  /** Until then it neither sends nor hears anything. */
  frozenUntilMs: number
  answer: AnswerPeer
}

type Connection = {
  readonly asker: Asker
  /** The asker knows that it ended. */
  ended: boolean
  /** To run when the other side knows; null: it does. */
  gone: (() => void)[] | null
}

type Parts = {
  readonly random: SeededRandom
  readonly count: (what: string) => void
  readonly faulty: () => boolean
}

const viewAgeMaxMs = 1_000
const passByMaxMs = 2_000
/** The row of a process that crashed is taken for a living one for so long at most. */
const staleRowMaxMs = 8_000
/** Most delays are shorter than anyone waits, some are far longer. */
const delayMaxMs = 40_000

export const createNetwork = ({ random, count, faulty }: Parts) => {
  const chance = (probability: number): boolean => faulty() && random.next() < probability
  const stations = new Map<string, Station>()
  /** Those that are in the table, and until when. */
  const rows = new Map<string, number>()
  const journeys = createJourneys(random, chance, count)
  const links = new Map<string, ReturnType<typeof createLink>>()

  const linkOf = (from: Station, to: Station) => {
    const name = `${from.id}>${to.id}`
    const known = links.get(name)
    if (known !== undefined) return known
    const link = createLink({ from, to, journeys, random, chance, count })
    links.set(name, link)
    return link
  }
  const living = (): string[] => [...rows].flatMap(([id, untilMs]) => (time.nowMs < untilMs ? [id] : []))

  const view = (): string[] => {
    if (chance(0.05)) return living().filter(() => random.next() < 0.5)
    return living()
  }

  return {
    join: (station: Station): void => {
      stations.set(station.id, station)
      rows.set(station.id, Number.POSITIVE_INFINITY)
    },
    /** In good order. */
    leave: (station: Station): void => void rows.delete(station.id),
    crashed: (station: Station): void => {
      if (rows.has(station.id)) rows.set(station.id, time.nowMs + random.integer(staleRowMaxMs))
      // A machine that is gone tells no one.
      for (const other of stations.values())
        for (const link of [links.get(`${station.id}>${other.id}`), links.get(`${other.id}>${station.id}`)])
          if (random.next() < 0.7) link?.cut(random.integer(50))
    },
    /** Ends connections of one process. */
    cut: (station: Station): void => {
      for (const other of stations.values()) {
        if (random.next() < 0.5) links.get(`${station.id}>${other.id}`)?.cut(0)
        if (random.next() < 0.5) links.get(`${other.id}>${station.id}`)?.cut(0)
      }
    },
    /** Whom a process takes for the owners of ledgers. */
    ownersOf: (station: Station): Owners => {
      const knownAtMs = time.nowMs + (chance(0.5) ? random.integer(500) : 0)
      const passedBy = new Map<string, number>()
      let seen: string[] = []
      let seenUntilMs = Number.NEGATIVE_INFINITY
      const isOwner = (id: string): boolean => {
        if (id === station.id) return true
        return time.nowMs >= (passedBy.get(id) ?? 0)
      }
      return {
        opening: () => (time.nowMs < knownAtMs ? time.wait(knownAtMs - time.nowMs) : null),
        others: () => living().some((id) => id !== station.id),
        ownerOf: (organizationId) => {
          if (time.nowMs >= seenUntilMs) {
            seen = view()
            seenUntilMs = time.nowMs + (faulty() ? random.integer(viewAgeMaxMs) : 0)
          }
          const owner = seen
            .filter(isOwner)
            .reduce<string | null>(
              (best, id) =>
                best === null || weightOf(id, organizationId) > weightOf(best, organizationId) ? id : best,
              null,
            )
          const other = owner === null || owner === station.id ? undefined : stations.get(owner)
          return other === undefined ? null : linkOf(station, other).peer
        },
        passBy: (id) => {
          count('passed by')
          passedBy.set(id, time.nowMs + random.integer(passByMaxMs))
        },
      }
    },
  }
}

export type Network = ReturnType<typeof createNetwork>

const weights = new Map<string, number>()
/** Rendezvous hashing. */
const weightOf = (id: string, organizationId: string): number => {
  const name = `${id} ${organizationId}`
  const known = weights.get(name)
  if (known !== undefined) return known
  let weight = 2_166_136_261
  for (let i = 0; i < name.length; i++) weight = Math.imul(weight ^ name.charCodeAt(i), 16_777_619)
  weight = Math.imul(weight ^ (weight >>> 15), 0x2c1b3c6d) >>> 0
  weights.set(name, weight)
  return weight
}

/** After how many milliseconds each copy of a message arrives. */
const createJourneys =
  (
    random: SeededRandom,
    chance: (probability: number) => boolean,
    count: (what: string) => void,
    roughness = random.next() * 0.15,
  ) =>
  (): number[] => {
    const usual = (): number => random.integer(4)
    // From calm to rough.
    if (!chance(roughness)) return [usual()]
    if (chance(0.2)) {
      count('message lost')
      return []
    }
    if (chance(0.5)) {
      count('message late')
      return [random.integer(chance(0.5) ? 3_000 : delayMaxMs)]
    }
    count('message doubled')
    return [usual(), random.integer(chance(0.5) ? 50 : delayMaxMs)]
  }

type LinkParts = {
  readonly from: Station
  readonly to: Station
  readonly journeys: () => number[]
  readonly random: SeededRandom
  readonly chance: (probability: number) => boolean
  readonly count: (what: string) => void
}

/** Lets a message through to a station, once it hears anything. */
const hearing = async (station: Station, run: () => void): Promise<void> => {
  while (station.alive && time.nowMs < station.frozenUntilMs)
    await time.wait(station.frozenUntilMs - time.nowMs)
  if (station.alive) run()
}

const createLink = ({ from, to, journeys, random, chance, count }: LinkParts) => {
  let connection = connect()
  let openAgainMs = 0
  /** What hears the answers of this connection. */
  let open = new Set<(answer: unknown) => void>()

  function connect(): Connection {
    const made: Connection = {
      ended: false,
      gone: [],
      asker: {
        id: from.id,
        onGone: (run) => {
          if (made.gone === null) run()
          else made.gone.push(run)
        },
      },
    }
    return made
  }

  const cut = (afterMs: number): void => {
    count('connection ended')
    const ended = connection
    const unheard = open
    ended.ended = true
    open = new Set()
    connection = connect()
    openAgainMs = time.nowMs + afterMs + (chance(0.5) ? random.integer(3_000) : 0)
    void time.wait(afterMs).then(() =>
      hearing(from, () => {
        for (const hear of unheard) hear(null)
      }),
    )
    void time.wait(random.integer(chance(0.3) ? 20_000 : 20)).then(() =>
      hearing(to, () => {
        const gone = ended.gone ?? []
        ended.gone = null
        for (const run of gone) run()
      }),
    )
  }

  const ask: Peer['ask'] = (question, heard) => {
    if (time.nowMs < openAgainMs || (!to.alive && chance(0.9))) return false
    const own = connection
    const text = JSON.stringify(question)
    let waiting = true
    const once = (answer: unknown): void => {
      open.delete(once)
      if (waiting) heard(answer)
      waiting = false
    }
    open.add(once)
    if (!from.alive) return true
    const travel = (station: Station, run: () => void): void => {
      for (const ms of journeys()) void time.wait(ms).then(() => hearing(station, run))
    }
    travel(to, () => {
      if (own.ended) {
        if (random.next() < 0.3) return
        count('question of an ended connection')
      }
      to.answer(JSON.parse(text), own.asker, (answer) => {
        if (!to.alive) return
        const told = JSON.stringify(answer)
        travel(from, () => {
          if (!own.ended) once(JSON.parse(told))
        })
      })
    })
    return true
  }
  return { peer: { id: to.id, ask } satisfies Peer, cut }
}
