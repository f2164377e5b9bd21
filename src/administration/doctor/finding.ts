import { within } from '../../concurrency/deadline.ts'

/** What "doctor" finds: one line for each thing that was looked at. */

export type Finding = {
  /** What was looked at, in a word or two. */
  readonly about: string
  /** `warning`: it works, and will not for long, or not as it should. `fault`: something does not work. */
  readonly level: 'ok' | 'warning' | 'fault'
  /** A sentence with the value. Never a secret. */
  readonly says: string
  /** What to do; null where nothing is to be done. */
  readonly remedy: string | null
  /** The values, for programs. */
  readonly figures?: Readonly<Record<string, number | string | null>>
}

export type Told = Omit<Finding, 'about'>

/** One thing that is looked at. What it throws is a fault of its own, and keeps no other from being looked at. */
export type Check = {
  readonly about: string
  /** More than one where it is a list of things. None: it does not concern this installation. */
  readonly look: () => Told | readonly Told[] | Promise<Told | readonly Told[]>
}

export const ok = (says: string, figures?: Finding['figures']): Told => ({
  ...{ level: 'ok', says, remedy: null },
  ...(figures === undefined ? {} : { figures }),
})

export const warning = (says: string, remedy: string, figures?: Finding['figures']): Told => ({
  ...{ level: 'warning', says, remedy },
  ...(figures === undefined ? {} : { figures }),
})

export const fault = (says: string, remedy: string, figures?: Finding['figures']): Told => ({
  ...{ level: 'fault', says, remedy },
  ...(figures === undefined ? {} : { figures }),
})

/** Each question to a server has a shorter one: this is for what hangs all the same. */
const checkMaxMs = 10_000
/** A message of others may be a page. */
const reasonCharsMax = 400

/** Looks at all of them at once, each for ten seconds at most, and tells what was found in the order of the checks. Never rejects. */
export const lookAt = async (checks: readonly Check[], maxMs = checkMaxMs): Promise<Finding[]> => {
  const all = await Promise.all(
    checks.map(async ({ about, look }): Promise<Finding[]> => {
      const told = await within(
        (async () => look())().catch((error: unknown) =>
          fault(
            `it could not be looked at: ${reasonOf(error)}`,
            'See what the other lines say, and the log of the service.',
          ),
        ),
        { waitMs: maxMs },
        () =>
          fault(
            `no answer within ${maxMs / 1_000} s`,
            'Something it depends on hangs: see the other lines, and whether the machine has processor time and disk to spare.',
          ),
      )
      return [told].flat().map((one) => ({ about, ...one }))
    }),
  )
  return all.flat()
}

/** Why something failed, in one line. A host with several addresses fails with an error for each, and says nothing itself. */
export const reasonOf = (error: unknown): string => {
  const first = error instanceof AggregateError && error.message === '' ? error.errors[0] : error
  const text = first instanceof Error ? first.message || first.name : String(first)
  return (text.split('\n', 1)[0] ?? '').slice(0, reasonCharsMax)
}

/** How long something took or lies back, for a person. */
export const durationText = (ms: number): string => {
  const seconds = Math.round(Math.abs(ms) / 1_000)
  if (seconds < 1) return `${Math.round(Math.abs(ms))} ms`
  if (seconds < 120) return `${seconds} s`
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / 86_400)} days`
}
