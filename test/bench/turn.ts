import { rmSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/** Benchmarks take turns, because two benchmarks on one machine would disturb each other's figures. */

const file = join(tmpdir(), 'enrichment-ledger-bench.pid')
const waitMsMax = 15 * 60_000
const pollMs = 500

export const takeTurn = async (report: (line: string) => void): Promise<void> => {
  const deadline = Date.now() + waitMsMax
  let reported = 0
  for (;;) {
    const holder = await holderOf()
    if (holder === 0) {
      rmSync(file, { force: true })
      try {
        await writeFile(file, String(process.pid), { flag: 'wx' })
        process.on('exit', () => rmSync(file, { force: true }))
        return
      } catch {
        // Another process took the turn first.
      }
    } else if (holder !== reported) report(`waiting for the benchmark of process ${holder} to end`)
    reported = holder
    if (Date.now() > deadline)
      throw new Error(`the benchmark of process ${holder} takes longer than ${waitMsMax / 60_000} minutes`)
    await sleep(pollMs)
  }
}

/** The running benchmark's process, or 0 if there is none. */
const holderOf = async (): Promise<number> => {
  const pid = Number(await readFile(file, 'utf8').catch(() => ''))
  if (pid === 0 || Number.isNaN(pid)) return 0
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
  return command.includes('run.ts') ? pid : 0
}
