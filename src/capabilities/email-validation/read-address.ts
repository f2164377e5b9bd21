import type { ListEvidence, ParsedEmail, SyntaxReason } from './evidence.ts'
import { inspectLists } from './lists/inspect.ts'
import { readAsMeant } from './syntax/as-meant.ts'
import { parseEmail } from './syntax/parse.ts'
import { repairedAddress } from './syntax/repair.ts'

export type AddressReading = {
  /** The text without the invisible characters and white space that pasting adds. */
  readonly meant: string
  readonly parsed: ParsedEmail
  readonly lists: ListEvidence | null
  /** The corrected address, if the provider is mistyped or the text is malformed. */
  readonly didYouMean: string | null
}

/** Reads an address as the person meant it (decision 16), and checks it against the lists. Uses no network; never throws. */
export const readAddress = (text: string): AddressReading => {
  const meant = readAsMeant(text)
  const parsed = parseEmail(meant)
  if (!parsed.valid) return { meant, parsed, lists: null, didYouMean: repairOf(meant, parsed.reason) }
  const lists = inspectLists(parsed.address)
  return { meant, parsed, lists, didYouMean: lists.didYouMean }
}

/** A repaired text can still have a mistyped provider, as in `x@gmial,com`. */
const repairOf = (meant: string, reason: SyntaxReason): string | null => {
  const address = repairedAddress(meant, reason)
  return address === null ? null : (inspectLists(address).didYouMean ?? address.normalized)
}
