/**
 * Whether the user and the password are encoded. With an unencoded character, a part of the password can become the host, path or options of the
 * URL, which error messages show.
 */
export const credentialsEncoded = (url: string): boolean => {
  const credentials = /^[^:/]*:\/\/(.*)@/s.exec(url)?.[1] ?? ''
  return !/[/@#?[\]\s]|%(?![0-9a-f]{2})/i.test(credentials)
}

export const credentialsRule =
  'a URL in which special characters in the password are encoded: % as %25, / as %2F, @ as %40, # as %23, ? as %3F; or use a password of letters and digits'

/** Whether the URL has one host. The driver reads several hosts as one name, which does not exist. */
export const hasOneHost = (url: string): boolean =>
  !(/^[^:/]*:\/\/(?:[^/?#]*@)?([^/?#]*)/.exec(url)?.[1] ?? '').includes(',')

export const oneHostRule =
  'a URL with one host; after a failover, the name of this host must lead to the new primary server'

/** Whether the driver can read the name of the database. It leaves an encoded ? or # encoded, and takes an unencoded one as the end of the name. */
export const databaseReadable = (url: string): boolean => !/^[^:/]*:\/\/[^/]*\/[^?]*(?:#|%23|%3F)/i.test(url)

export const databaseRule =
  'a URL of a database whose name contains neither ? nor #, which the driver cannot read'
