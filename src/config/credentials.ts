/**
 * Whether user and password end where the URL's reader takes them to end. A character that is not encoded makes a part of a password
 * a host name, a path or an option, which error messages then show.
 */
export const credentialsEncoded = (url: string): boolean => {
  const credentials = /^[^:/]*:\/\/(.*)@/s.exec(url)?.[1] ?? ''
  return !/[/@#?[\]\s]|%(?![0-9a-f]{2})/i.test(credentials)
}

export const credentialsRule =
  'its password has a character that a URL takes for something else: write % as %25, / as %2F, @ as %40, # as %23, ? as %3F, or choose letters and digits'
