/**
 * The JSON-LD of a web page (`<script type="application/ld+json">`), read without trusting the page.
 *
 * A page is hostile: markup can be built to keep a parser busy. It is therefore parsed in a separate thread that is
 * killed when its time is up, one thread per page, so that nothing of one page is left for the next. The reader that the
 * caller names interprets the page in the same thread and within the same time: the main thread only gets
 * the reader's answer, and never raw text of the page.
 */
import { Worker } from 'node:worker_threads'

/**
 * A module that exports `read`, a `ReadNodes`, and its input in addition to the nodes. Input and answer are copied
 * between threads (structured clone).
 */
type NodeReader = { readonly module: URL; readonly input: unknown }

type JsonLd<Answer> =
  /** The page has JSON-LD, and the reader answered. */
  | { readonly kind: 'found'; readonly answer: Answer }
  /** The page has no JSON-LD. */
  | { readonly kind: 'none' }
  /** Its time was up, or too many pages were being read already. */
  | { readonly kind: 'too_slow' }
  /** Its JSON-LD is not JSON within the limits, or it took too much memory. */
  | { readonly kind: 'malformed' }

/** The part of a page that is read. The rest is ignored, as if the page ended there. */
export const jsonLdLimits = {
  /** Of the page. */
  htmlBytesMax: 2 * 1024 * 1024,
  blocksMax: 5,
  /** Characters of all blocks of a page together. A block that exceeds the rest is skipped. */
  blockCharactersMax: 512 * 1024,
  /** Objects and lists within each other. */
  depthMax: 32,
  nodesMax: 500,
  /** For one text; the rest of it is cut off. No reader keeps more. */
  textCharactersMax: 16_384,
} as const

/** From the moment a thread has the page until the reader has answered. A large honest page takes tens of milliseconds. */
export const jsonLdTimeMaxMs = 1_000

/** Loading a thread and its reader takes about 150 ms; more than this means that the machine has no time for pages. */
const threadStartMaxMs = 5_000
/** More would take processor time from calls that do not need a page. */
const threadsMax = 2
const waitingMax = 32
const threadHeapMaxMb = 64

/** The message to a thread, once it reports that it is ready. */
export type PageToRead = { readonly html: Uint8Array<ArrayBuffer>; readonly charset: string | null }
/** The data a thread is started with: its reader. */
export type PageThread = { readonly module: string; readonly input: unknown }
/** The messages of a thread. */
export type PageRead =
  | { readonly kind: 'ready' }
  | { readonly kind: 'found'; readonly answer: unknown }
  | { readonly kind: 'none' }
  | { readonly kind: 'malformed' }

let threads = 0
const waiting: (() => void)[] = []

/**
 * Reads the JSON-LD of a page. Takes at most `jsonLdTimeMaxMs` of parsing and reading and settles by the deadline.
 *
 * `deadlineMs` is on the `performance.now()` clock. `charset` is from the Content-Type; without it the page's own
 * `<meta charset>` counts, then UTF-8. Rejects only if a thread cannot be started, which is not the page's fault.
 */
export const readJsonLd = async <Answer>(
  html: Uint8Array,
  {
    deadlineMs,
    charset = null,
    reader,
  }: { readonly deadlineMs: number; readonly charset?: string | null; readonly reader: NodeReader },
): Promise<JsonLd<Answer>> => {
  if (!(await takeTurn(deadlineMs))) return { kind: 'too_slow' }
  try {
    // A separate copy, because a Buffer may be a window on memory that others use.
    const page = new Uint8Array(html.subarray(0, jsonLdLimits.htmlBytesMax))
    const thread = { module: reader.module.href, input: reader.input }
    return (await readInThread({ html: page, charset }, thread, deadlineMs)) as JsonLd<Answer>
  } finally {
    threads--
    waiting.shift()?.()
  }
}

/** Waits for one of the threads. False: the deadline came first, or too many wait already. */
const takeTurn = (deadlineMs: number): Promise<boolean> => {
  const remainingMs = deadlineMs - performance.now()
  if (remainingMs <= 0) return Promise.resolve(false)
  if (threads < threadsMax) {
    threads++
    return Promise.resolve(true)
  }
  if (waiting.length >= waitingMax) return Promise.resolve(false)
  return new Promise((resolve) => {
    const begin = (): void => {
      clearTimeout(timer)
      threads++
      resolve(true)
    }
    const timer = setTimeout(() => {
      waiting.splice(waiting.indexOf(begin), 1)
      resolve(false)
    }, remainingMs)
    waiting.push(begin)
  })
}

const readInThread = (page: PageToRead, thread: PageThread, deadlineMs: number): Promise<JsonLd<unknown>> =>
  new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./json-ld-worker.ts', import.meta.url), {
      execArgv: [],
      workerData: thread,
      // It needs nothing of ours, and must not see secrets.
      env: {},
      resourceLimits: { maxOldGenerationSizeMb: threadHeapMaxMb, stackSizeMb: 4 },
    })
    const settle = (how: () => void): void => {
      clearTimeout(timer)
      worker.removeAllListeners()
      // A thread that is ended may still report a failure; without a listener that would end the process.
      worker.on('error', () => undefined)
      // Settled only when the thread has ended: it is counted until then.
      worker.terminate().then(how, how)
    }
    const tooSlow = (): void => settle(() => resolve({ kind: 'too_slow' }))
    const remainingMs = (): number => Math.max(0, deadlineMs - performance.now())
    let timer = setTimeout(tooSlow, Math.min(threadStartMaxMs, remainingMs()))
    worker.on('message', (said: PageRead) => {
      if (said.kind !== 'ready') return settle(() => resolve(said))
      clearTimeout(timer)
      timer = setTimeout(tooSlow, Math.min(jsonLdTimeMaxMs, remainingMs()))
      worker.postMessage(page, [page.html.buffer])
    })
    worker.on('error', (error) =>
      settle(() =>
        isOutOfMemory(error)
          ? resolve({ kind: 'malformed' })
          : reject(new Error('a thread that reads pages failed', { cause: error })),
      ),
    )
    worker.on('exit', (code) =>
      settle(() => reject(new Error(`a thread that reads pages ended with code ${code} and said nothing`))),
    )
  })

const isOutOfMemory = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY'
