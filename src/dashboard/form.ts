import { InputFault } from '../administration/input.ts'
import { EventDataError } from '../event-log/stored-event.ts'
import { CommandRefused } from '../ledger/command.ts'
import { capitalized } from './format.ts'
import type { FormFault } from './pages/layout.ts'

/** Reads the text values of forms and query strings, and ignores all other values. */

export type Form = {
  text(name: string): string
  list(name: string): string[]
}

export const formOf = (given: unknown): Form => {
  const members: Readonly<Record<string, unknown>> =
    typeof given === 'object' && given !== null ? { ...given } : {}
  const list = (name: string): string[] =>
    [members[name]].flat().filter((value): value is string => typeof value === 'string')
  return {
    text: (name) => list(name)[0] ?? '',
    list,
  }
}

/** The message for the person who sent a form; null if the error is not about the form. */
export const faultOf = (error: unknown): FormFault | null => {
  if (error instanceof InputFault) return { field: error.field, message: sentence(error.message) }
  if (error instanceof CommandRefused || error instanceof EventDataError)
    return { field: null, message: sentence(error.message) }
  return null
}

const sentence = (text: string): string => `${capitalized(text)}.`
