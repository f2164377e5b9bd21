import { readFileSync } from 'node:fs'
import type { CapabilityCheck } from '../../../call/capability.ts'
import { listPath, readRefreshed, vendoredListFolder } from './file.ts'
import { packagesPublished } from './packages.ts'

/** Throw-away services take new domains every day: a list that is three months old misses the domains in use now. */
export const listsAgeDaysMax = 90
export const listsRemedy = 'Run "lists refresh", then send SIGHUP to the service. Schedule it monthly.'
const dayMs = 86_400_000

/** The date of the disposable and free lists in use: refreshed lists state it in their first line. */
export const listsAge = (folder = vendoredListFolder, clock: { now(): number } = Date): CapabilityCheck => ({
  name: 'lists',
  severity: 'fault',
  bound: { unit: 'days', warning: listsAgeDaysMax },
  advice: listsRemedy,
  look: async () => {
    const { refreshed, oldest } = listsIn(folder)
    const age = Math.floor((clock.now() - Date.parse(oldest)) / dayMs)
    const from =
      refreshed.length === 0
        ? 'of the packages'
        : `refreshed: ${refreshed.map(({ name, count }) => `${name} ${count}`).join(', ')}`
    return { says: `domains ${from}; of ${oldest}, ${age} days ago`, state: { value: age } }
  },
})

const listsIn = (folder: string) => {
  const refreshed = (['disposable', 'free'] as const).flatMap((name) => {
    const entries = readRefreshed(folder, name)
    return entries === null ? [] : [{ name, count: entries.size, day: generatedOn(folder, name) }]
  })
  const days = [...refreshed.map(({ day }) => day), ...(refreshed.length === 2 ? [] : [packagesPublished])]
  return { refreshed, oldest: days.toSorted()[0] ?? packagesPublished }
}

/** The date, in milliseconds, of the oldest list. Throws if the lists cannot be read. */
export const listsDayMs = (folder = vendoredListFolder): number => Date.parse(listsIn(folder).oldest)

const generatedOn = (folder: string, name: 'disposable' | 'free'): string => {
  const path = listPath(folder, name)
  const day = /^# Generated (\d{4}-\d{2}-\d{2}),/.exec(readFileSync(path, 'utf8'))?.[1]
  if (day === undefined) throw new Error(`${path} does not say when it was generated`)
  return day
}
