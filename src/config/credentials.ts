/**
 * Whether user and password are encoded. An unencoded character can make a part of the password the host, path or options of the URL, which
 * error messages show.
 */
export const credentialsEncoded = (url: string): boolean => {
  const credentials = /^[^:/]*:\/\/(.*)@/s.exec(url)?.[1] ?? ''
  return !/[/@#?[\]\s]|%(?![0-9a-f]{2})/i.test(credentials)
}

export const credentialsRule =
  'its password has a character with another meaning in a URL: write % as %25, / as %2F, @ as %40, # as %23, ? as %3F, or choose letters and digits'
