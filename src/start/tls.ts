import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { Server } from 'node:http'
import { createSecureContext } from 'node:tls'
import type { Logger } from 'pino'
import { type Config, ConfigError } from '../config.ts'

type Tls = { readonly cert: Buffer; readonly key: Buffer }
type Paths = Pick<Config, 'TLS_CERT' | 'TLS_KEY'>

const renewalCheckMs = 60_000

/** Reads TLS_CERT and TLS_KEY. Null: neither is set. Throws `ConfigError` if the files cannot be read or do not belong together. */
export const readTls = async ({ TLS_CERT, TLS_KEY }: Paths): Promise<Tls | null> => {
  if (TLS_CERT === undefined || TLS_KEY === undefined) return null
  const [cert, key] = [await read('TLS_CERT', TLS_CERT), await read('TLS_KEY', TLS_KEY)]
  blaming('TLS_CERT', `${TLS_CERT} is not a PEM certificate`, () => new X509Certificate(cert))
  blaming('TLS_CERT', `${TLS_CERT} cannot be used by a server`, () => createSecureContext({ cert }))
  blaming('TLS_KEY', `${TLS_KEY} is not the private key of ${TLS_CERT} in PEM, without a passphrase`, () =>
    createSecureContext({ cert, key }),
  )
  return { cert, key }
}

const read = (variable: string, path: string): Promise<Buffer> =>
  readFile(path).catch((cause: unknown) => {
    const code = cause instanceof Error && 'code' in cause ? cause.code : 'unknown'
    throw new ConfigError(
      `${variable}: ${path} ${code === 'ENOENT' ? 'does not exist' : `cannot be read (${code})`}`,
      { cause },
    )
  })

const blaming = (variable: string, fault: string, work: () => unknown): void => {
  try {
    work()
  } catch (cause) {
    throw new ConfigError(`${variable}: ${fault} (${cause instanceof Error ? cause.message : cause})`, {
      cause,
    })
  }
}

/** Uses renewed certificate files for new connections. Ignores files that are invalid or do not belong together, and logs each fault once. */
export const serveRenewed = (
  paths: Paths,
  { tls, servers, logger }: { tls: Tls; servers: readonly Server[]; logger: Logger },
  checkMs = renewalCheckMs,
): { look(): Promise<void>; end(): void } => {
  let served = tls
  let lastFault = ''
  const renew = async (): Promise<void> => {
    const found = await readTls(paths)
    if (found === null || (found.cert.equals(served.cert) && found.key.equals(served.key))) return
    for (const server of servers) if ('setSecureContext' in server) Object(server).setSecureContext(found)
    served = found
    lastFault = ''
    logger.info({ until: new X509Certificate(found.cert).validTo }, 'TLS: the renewed certificate is in use')
  }
  const look = (): Promise<void> =>
    renew().catch((error: unknown) => {
      const fault = error instanceof Error ? error.message : String(error)
      if (fault !== lastFault)
        logger.error(
          { err: error },
          'TLS: the new certificate files cannot be used; the old certificate stays in use',
        )
      lastFault = fault
    })
  const timer = setInterval(look, checkMs)
  timer.unref()
  return { look, end: () => clearInterval(timer) }
}
