/** Why a rule of the tariff applied, in words for people who read a bill. By rule, or by rule and version if a version needs other words. */
const words: Readonly<Record<string, string>> = {
  'email_validation.valid': 'the address is valid',
  'email_validation.company_found': 'company data were asked for and found',
  'email_validation.company_found/2':
    'company data were asked for and found, for an address that is valid or risky',
  'email_validation.invalid': 'an invalid address costs nothing',
  'email_validation.risky': 'a risky address costs nothing',
  'email_validation.unknown': 'an address that could not be judged costs nothing',
  'ip_lookup.located': 'the address was located',
  'ip_lookup.not_located': 'an address that is not located costs nothing',
  'profile.cached': 'profile data of up to 30 days ago were delivered',
  'profile.fresh': 'profile data of this minute were delivered',
  'profile.deleted': 'a profile that is gone costs nothing',
  pixel: 'the pixel controls cost nothing',
  whoami: 'whoami costs nothing',
  account: "a look at one's own account costs nothing",
  ledger_export: "the export of one's own ledger costs nothing",
  replay: 'the answer of an earlier call was given again, which costs nothing',
  refusal: 'a call that is refused or fails costs nothing',
}

/** Empty for a rule of another release. */
export const ruleWords = (rule: string, version: number): string =>
  words[`${rule}/${version}`] ?? words[rule] ?? ''
