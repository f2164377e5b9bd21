import { enableCompileCache } from 'node:module'
import { join } from 'node:path'

/**
 * From the second start on, modules are loaded from a cache of compiled code, which halves the processor time of a start. Modules that are
 * imported before this call do not benefit. The cache is in the package directory, where anyone who can write can change the program anyway.
 */
export const useCompileCache = (): void => {
  enableCompileCache(join(import.meta.dirname, '../../node_modules/.cache/node'))
}
