import type { After } from './deadline.ts'

type FairPlacesBounds = {
  readonly placesMax: number
  /** The maximum number of waiting callers of all parties. */
  readonly waitingMax: number
  /** A caller is refused after waiting this long. */
  readonly waitMaxMs: number
}

/** A function that releases the place and must be called once, or the reason why there is no place. */
type Outcome = (() => void) | 'full' | 'late'

type Waiting = { readonly settle: (outcome: Outcome) => void }

type Party = { readonly name: string; held: number; readonly line: Waiting[] }

/**
 * A limited number of places, shared by many parties. Callers without a place wait in a queue with a limited length and time. A free place goes to
 * the party with the fewest places or, if there are several, to the one that has waited longest for a new place. Therefore, a party with a hundred
 * times as many requests delays only itself. If the queue is full, the newest caller of the party with the most waiting callers is refused.
 */
export class FairPlaces {
  readonly #bounds: FairPlacesBounds
  readonly #after: After
  /** The parties with places or waiting callers, in the order in which they last got a place. */
  readonly #parties = new Map<string, Party>()
  #taken = 0
  #waiting = 0

  constructor(bounds: FairPlacesBounds, after: After) {
    this.#bounds = bounds
    this.#after = after
  }

  get taken(): number {
    return this.#taken
  }

  get waiting(): number {
    return this.#waiting
  }

  async take(name: string): Promise<Outcome> {
    const party = this.#parties.get(name) ?? { name, held: 0, line: [] }
    this.#parties.set(name, party)
    return this.#taken < this.#bounds.placesMax ? this.#give(party) : this.#wait(party)
  }

  #give(party: Party): () => void {
    this.#taken += 1
    party.held += 1
    this.#parties.delete(party.name)
    this.#parties.set(party.name, party)
    let given = true
    return () => {
      if (!given) return
      given = false
      this.#taken -= 1
      party.held -= 1
      this.#forget(party)
      this.#serveNext()
    }
  }

  #serveNext(): void {
    let next: Party | undefined
    for (const party of this.#parties.values())
      if (party.line.length > 0 && (next === undefined || party.held < next.held)) next = party
    const first = next?.line.shift()
    if (next === undefined || first === undefined) return
    this.#waiting -= 1
    first.settle(this.#give(next))
  }

  #wait(party: Party): Promise<Outcome> {
    const { promise, resolve } = Promise.withResolvers<Outcome>()
    const cancel = this.#after(this.#bounds.waitMaxMs, () => this.#refuse(party, one, 'late'))
    const one: Waiting = {
      settle: (outcome) => {
        cancel()
        resolve(outcome)
      },
    }
    party.line.push(one)
    this.#waiting += 1
    if (this.#waiting > this.#bounds.waitingMax) this.#refuseNewest()
    return promise
  }

  #refuseNewest(): void {
    let longest: Party | undefined
    for (const party of this.#parties.values())
      if (party.line.length >= (longest?.line.length ?? 1)) longest = party
    const newest = longest?.line.at(-1)
    if (longest !== undefined && newest !== undefined) this.#refuse(longest, newest, 'full')
  }

  #refuse(party: Party, one: Waiting, why: 'full' | 'late'): void {
    party.line.splice(party.line.indexOf(one), 1)
    this.#waiting -= 1
    this.#forget(party)
    one.settle(why)
  }

  #forget(party: Party): void {
    if (party.held === 0 && party.line.length === 0) this.#parties.delete(party.name)
  }
}
