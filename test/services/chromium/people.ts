/** People who use the dashboard. */
import { randomUUID } from 'node:crypto'
import { signInAs, type Window } from './browser.ts'

export type Person = { readonly name: string; readonly password: string }

/**
 * Signs in for the first time, starting from a page. If the system chose the password, the person replaces it. Returns the person
 * with the current password.
 */
export const signInFirst = async (window: Window, person: Person, from = '/login'): Promise<Person> => {
  const { page } = window
  await signInAs(window, person, from)
  if ((await page.getByRole('heading', { name: 'Choose your password' }).count()) === 0) return person
  const own = { name: person.name, password: `${person.name} chose ${randomUUID()}` }
  await page.fill('#present', person.password)
  await page.fill('#new', own.password)
  await page.fill('#again', own.password)
  await page.getByRole('button', { name: 'Change password' }).click()
  await page.getByRole('heading', { name: 'Choose your password' }).waitFor({ state: 'hidden' })
  return own
}
