import type { Health } from './health.ts'

/** How many api processes this one forked, and how many of them are ready for calls. */
export type ForkedProcesses = () => Promise<{ readonly wanted: number; readonly answering: number }>

/** The health of a process and of those it forked: ready while any of them is. */
export const withForks = (health: Health, forks: ForkedProcesses): Health => ({
  ...health,
  readiness: async (options) => {
    const [own, { wanted, answering }] = await Promise.all([health.readiness(options), forks()])
    const status = answering === wanted ? 'ok' : answering > 0 ? 'degraded' : 'failed'
    return {
      ready: own.ready && answering > 0,
      checks: { ...own.checks, api_processes: { status, wanted, answering } },
    }
  },
})
