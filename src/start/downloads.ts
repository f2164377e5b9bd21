import { readFile } from 'node:fs/promises'
import type { FastifyPluginAsync } from 'fastify'
import type { Logger } from 'pino'

/**
 * Scripts by which a partner checks what it was charged without trusting this service. They import nothing of it, and are the very
 * files that its tests run.
 */
const scripts = ['verify-receipt.ts', 'recompute-ledger.ts'] as const
const folder = new URL('../../test/support/', import.meta.url)

/** `/docs/<script>`, for everyone: there is nothing in them that is not published. */
export const downloads =
  (logger: Logger): FastifyPluginAsync =>
  async (host) => {
    for (const name of scripts) {
      const text = await readFile(new URL(name, folder), 'utf8').catch((error: unknown) => {
        logger.warn(
          { err: error, script: name },
          'a script for partners is not installed and cannot be downloaded',
        )
        return null
      })
      if (text !== null)
        host.get(`/docs/${name}`, (_request, reply) =>
          reply
            .type('text/plain; charset=utf-8')
            .header('content-disposition', `attachment; filename="${name}"`)
            .send(text),
        )
    }
  }
