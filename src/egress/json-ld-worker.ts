/** The thread of `json-ld.ts`: reads one page and returns the answer of its reader. `json-ld.ts` ends it. */
import { parentPort, workerData } from 'node:worker_threads'
import type { PageRead, PageThread, PageToRead } from './json-ld.ts'
import type { ReadNodes } from './json-ld-nodes.ts'
import { readPage } from './json-ld-page.ts'

const { module, input } = workerData as PageThread
/** Loaded before the thread is ready, so that loading does not use the page's time. */
const reader = (await import(module)) as { readonly read: ReadNodes<unknown, unknown> }

parentPort?.once('message', (page: PageToRead) =>
  parentPort?.postMessage(readPage(page, (nodes) => reader.read(nodes, input))),
)
parentPort?.postMessage({ kind: 'ready' } satisfies PageRead)
