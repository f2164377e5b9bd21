import { useCompileCache } from './foundation/compile-cache.ts'

// Starts the service.
useCompileCache()
await import('./start/main.ts')
