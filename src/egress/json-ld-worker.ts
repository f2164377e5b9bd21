/** The thread of `json-ld.ts`, which reads one page and returns the answer of its reader. */
import { parentPort, workerData } from 'node:worker_threads'
import type { PageRead, PageThread, PageToRead } from './json-ld.ts'
import type { ReadNodes } from './json-ld-nodes.ts'
import { readPage } from './json-ld-page.ts'

const { module, input } = workerData as PageThread
/** Loaded before the thread reports that it is ready, so that loading does not count as time for the page. */
const reader = (await import(module)) as { readonly read: ReadNodes<unknown, unknown> }

parentPort?.once('message', (page: PageToRead) =>
  parentPort?.postMessage(readPage(page, (nodes) => reader.read(nodes, input))),
)
parentPort?.postMessage({ kind: 'ready' } satisfies PageRead)
