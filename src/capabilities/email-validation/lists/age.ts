import { readFileSync } from 'node:fs'
import type { CapabilityCheck } from '../../../call/capability.ts'
import { listPath, readRefreshed, vendoredListFolder } from './file.ts'
import { packagesPublished } from './packages.ts'

/** Disposable-mail services use new domains every day, so a list that is three months old lacks the current ones. */
export const listsAgeDaysMax = 90
export const listsRemedy = 'Run "lists refresh", then send SIGHUP to the service. Schedule both monthly.'
const dayMs = 86_400_000

/** Checks the age of the disposable and free lists in use. Refreshed lists state their date in the first line. */
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
        ? 'from the packages'
        : `refreshed: ${refreshed.map(({ name, count }) => `${name} ${count}`).join(', ')}`
    return {
      says: `domains ${from}; the oldest list is from ${oldest}, ${age} days ago`,
      state: { value: age },
    }
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

/** The date of the oldest list in milliseconds. Throws if the lists cannot be read. */
export const listsDayMs = (folder = vendoredListFolder): number => Date.parse(listsIn(folder).oldest)

const generatedOn = (folder: string, name: 'disposable' | 'free'): string => {
  const path = listPath(folder, name)
  const day = /^# Generated (\d{4}-\d{2}-\d{2}),/.exec(readFileSync(path, 'utf8'))?.[1]
  if (day === undefined) throw new Error(`${path} does not state its date. Run "lists refresh" again.`)
  return day
}
