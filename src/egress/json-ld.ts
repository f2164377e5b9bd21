/**
 * What a web page says about itself in JSON-LD (`<script type="application/ld+json">`), read without trusting it.
 *
 * A page is hostile: markup can be built to keep a parser busy. It is therefore parsed in a thread of its own that is
 * killed when its time is up, one thread per page, so that nothing of one page is left for the next. What the page says is
 * made sense of in the same thread and within the same time, by the reader the caller names: the main thread only gets
 * what that reader answers, and never a text of the page's own making.
 */
import { Worker } from 'node:worker_threads'

/**
 * A module that exports `read`, a `ReadNodes`, and what is handed to it besides the nodes. Input and answer are copied
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
  /** It has JSON-LD, none of which is JSON within the limits, or it took too much memory. */
  | { readonly kind: 'malformed' }

/** What of a page is looked at. What lies beyond is passed over, as if the page ended there. */
export const jsonLdLimits = {
  /** Of the page. */
  htmlBytesMax: 2 * 1024 * 1024,
  blocksMax: 5,
  /** Characters of all blocks of a page together. A block that exceeds what is left is passed over. */
  blockCharactersMax: 512 * 1024,
  /** Objects and lists within each other. */
  depthMax: 32,
  nodesMax: 500,
  /** Of one text; the rest of it is cut off. No reader keeps more. */
  textCharactersMax: 16_384,
} as const

/** From the moment a thread has the page until the reader has answered. A large honest page takes some tens of milliseconds. */
export const jsonLdTimeMaxMs = 1_000

/** Loading a thread and its reader takes some 150 ms; more than this means that the machine has no time for pages. */
const threadStartMaxMs = 5_000
/** More would take the processor from calls that wait for no page. */
const threadsMax = 2
const waitingMax = 32
const threadHeapMaxMb = 64

/** What a thread is sent, once it says that it is ready. */
export type PageToRead = { readonly html: Uint8Array<ArrayBuffer>; readonly charset: string | null }
/** What a thread is started with: its reader. */
export type PageThread = { readonly module: string; readonly input: unknown }
/** What a thread says. */
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
 * `deadlineMs` is on the `performance.now()` clock. `charset` is what the Content-Type said; without it the page's own
 * `<meta charset>` counts, then UTF-8. Rejects only where a thread cannot be started, which is no page's fault.
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
    // A copy of its own: a Buffer may be a window on memory that others use.
    const page = new Uint8Array(html.subarray(0, jsonLdLimits.htmlBytesMax))
    const thread = { module: reader.module.href, input: reader.input }
    return (await readInThread({ html: page, charset }, thread, deadlineMs)) as JsonLd<Answer>
  } finally {
    threads--
    waiting.shift()?.()
  }
}

export type ReadJsonLd = typeof readJsonLd

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
      // It needs nothing of ours, secrets least of all.
      env: {},
      resourceLimits: { maxOldGenerationSizeMb: threadHeapMaxMb, stackSizeMb: 4 },
    })
    const settle = (how: () => void): void => {
      clearTimeout(timer)
      worker.removeAllListeners()
      // A thread that is ended may still say that it failed; without a listener that would end the process.
      worker.on('error', () => undefined)
      // Settled only when the thread is gone: it is counted until then.
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
