import type { Logger } from 'pino'
import type { Capability } from '../call/capability.ts'
import { capabilities } from '../capabilities/index.ts'
import type { Config } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { vacuum } from '../foundation/vacuum.ts'
import { liveTable } from '../projector/tables.ts'
import type { CapabilityData } from './declare.ts'
import { catchUp } from './projections/catch-up.ts'

/** The only file of administration that imports the capabilities. */

export { capabilityDeclarations as declarations } from '../capabilities/index.ts'

export const capabilityDataOf = (
  foundation: Foundation,
  { settings, logger }: { readonly settings: Config; readonly logger: Logger },
): CapabilityData => ({
  settings,
  folded: () => catchUp(foundation, logger),
  vacuum: async ({ tables, projections }) => {
    const rows = projections.flatMap((one) => one.tables.map(({ name }) => liveTable(one)(name)))
    return vacuum(foundation.migrationUrl, [...tables, ...rows])
  },
  sources: async () => {
    const looked = await Promise.allSettled(
      (capabilities as readonly Capability<Config>[]).map(
        async ({ data }) => (await data?.({ ...foundation, settings })) ?? [],
      ),
    )
    for (const one of looked)
      if (one.status === 'rejected') logger.warn({ err: one.reason }, 'data sources: a source cannot be read')
    return {
      sources: looked.flatMap((one) => (one.status === 'fulfilled' ? one.value : [])),
      faults: looked.flatMap((one) =>
        one.status === 'rejected' && one.reason instanceof Error ? [one.reason.message] : [],
      ),
    }
  },
  sealedStores: capabilities.flatMap(({ sealed }) => sealed?.(foundation) ?? []),
  recognizerOf: (text) => {
    const recognizers = (capabilities as readonly Capability<Config>[]).flatMap(
      ({ recognizes }) => recognizes?.({ ...foundation, settings }, text) ?? [],
    )
    return async (facts) => {
      for (const recognize of recognizers) {
        const verdict = await recognize(facts)
        if (verdict !== null) return verdict
      }
      return null
    }
  },
})
