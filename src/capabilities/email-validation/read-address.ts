import type { ListEvidence, ParsedEmail } from './evidence.ts'
import { inspectLists } from './lists/inspect.ts'
import { readAsMeant } from './syntax/as-meant.ts'
import { parseEmail } from './syntax/parse.ts'

export type AddressReading = {
  /** The text without the invisible characters and white space that pasting adds. */
  readonly meant: string
  readonly parsed: ParsedEmail
  readonly lists: ListEvidence | null
}

/** Reads an address as the person meant it (decision 16), and checks it against the lists. Uses no network; never throws. */
export const readAddress = (text: string): AddressReading => {
  const meant = readAsMeant(text)
  const parsed = parseEmail(meant)
  return { meant, parsed, lists: parsed.valid ? inspectLists(parsed.address) : null }
}
