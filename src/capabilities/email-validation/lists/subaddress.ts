/**
 * Subaddresses (RFC 5233): `user+tag@` reaches `user@` where the host says so. Only hosts that document it are here; for
 * everybody else a plus is an ordinary character (RFC 5321 §2.3.11: the local part is its host's to interpret).
 *
 * Yahoo's `base-keyword@` is left out: the base is a name of its own, not the account's, and an ordinary local part may
 * hold a hyphen, so the two cannot be told apart.
 */
const plusHosts: ReadonlySet<string> = new Set(
  [
    'gmail.com googlemail.com',
    'outlook.com hotmail.com live.com msn.com',
    'icloud.com me.com mac.com',
    'fastmail.com fastmail.fm sent.com',
    'proton.me protonmail.com protonmail.ch pm.me',
    'zoho.com zoho.eu zoho.in zohomail.com zohomail.eu zohomail.in',
    'yandex.ru yandex.com ya.ru mailbox.org posteo.de posteo.net hey.com',
  ].flatMap((line) => line.split(' ')),
)
/** Microsoft's and Posteo's country domains share one mail system each. */
const plusFamilies = /^(?:outlook|hotmail|live|posteo)\.[a-z.]{2,6}$/

/**
 * The tag of a subaddress, such as `news` of `user+news@gmail.com`; null where the host is not known to have them or
 * either side of the plus is empty. `provider` says that the domain is a curated provider's.
 */
export const subaddressTag = (address: {
  readonly localPart: string
  readonly asciiDomain: string
  readonly provider: boolean
}): string | null => {
  const plus = address.localPart.indexOf('+')
  if (plus < 1 || plus === address.localPart.length - 1 || address.localPart.startsWith('"')) return null
  const known =
    plusHosts.has(address.asciiDomain) || (address.provider && plusFamilies.test(address.asciiDomain))
  return known ? address.localPart.slice(plus + 1) : null
}
