import type { Logger } from 'pino'
import type { FoundData } from '../call/data-source.ts'
import { capabilities } from '../capabilities/index.ts'
import { remembered } from '../concurrency/remembered.ts'
import type { Config } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'
import type { AnyCapability } from './capabilities.ts'

/** However often a page is asked for, everything is looked at once in this time. */
const keptMs = 10_000

export const createDataSources = (
  foundation: Foundation,
  { config, logger }: { readonly config: Config; readonly logger: Logger },
  all: readonly AnyCapability[] = capabilities,
): (() => Promise<FoundData>) => {
  const look = async (): Promise<FoundData> => {
    const looked = await Promise.allSettled(
      all.map(async ({ data }) => (await data?.({ ...foundation, settings: config })) ?? []),
    )
    for (const one of looked)
      if (one.status === 'rejected') logger.warn({ err: one.reason }, 'data sources: one cannot be looked at')
    return {
      sources: looked.flatMap((one) => (one.status === 'fulfilled' ? one.value : [])),
      faults: looked.flatMap((one) =>
        one.status === 'rejected' && one.reason instanceof Error ? [one.reason.message] : [],
      ),
    }
  }
  return remembered(look, { keptMs })
}
