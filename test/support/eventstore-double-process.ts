import { startEventStoreDouble } from './eventstore-double.ts'

/** The double in a process of its own, which can be stopped as a server can. It tells its URL to the process that forked it. */

const { url } = await startEventStoreDouble({})
process.send?.(url)
