/**
 * Which commands a ledger got lately. It tells what is certainly not in a part of the ledger; whatever else may be there is
 * for the ledger itself to tell.
 */
export class RecentCommands {
  /** Of the commands behind this revision each is remembered. */
  #since = -1
  /** The beginning of each first event id, as a number, and the revision of the command's last event; in this order. */
  #marks: number[] = []
  #revisions: number[] = []

  /** Forgets everything: from now on what comes behind the revision is noted. */
  reset(since: number): void {
    this.#since = since
    this.#marks = []
    this.#revisions = []
  }

  /** Commands are noted in the order of the ledger. One that is noted already is passed over. */
  note(firstEventId: string, revision: number): void {
    if (revision <= (this.#revisions.at(-1) ?? this.#since)) return
    this.#marks.push(markOf(firstEventId))
    this.#revisions.push(revision)
    if (this.#marks.length < 2 * rememberedMin) return
    this.#since = this.#revisions[rememberedMin - 1] ?? this.#since
    this.#marks = this.#marks.slice(rememberedMin)
    this.#revisions = this.#revisions.slice(rememberedMin)
  }

  /** Whether the ledger may hold a command behind a revision. Null: it does not reach back so far. */
  mayHold(firstEventId: string, after: number): boolean | null {
    if (after < this.#since) return null
    const mark = markOf(firstEventId)
    for (let i = this.#marks.length - 1; i >= 0 && (this.#revisions[i] ?? after) > after; i--)
      if (this.#marks[i] === mark) return true
    return false
  }
}

/** At least so many, of each ledger: 16 bytes each. A command is rarely further behind when it comes from another process. */
const rememberedMin = 512

/** The first 48 bits of a UUIDv5, which are bits of a hash. Two with the same cost a read of the ledger. */
const markOf = (eventId: string): number => Number.parseInt(eventId.slice(0, 8) + eventId.slice(9, 13), 16)
