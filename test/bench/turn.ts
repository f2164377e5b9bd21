import { rmSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/** Two benchmarks at once measure each other: on one machine they take turns. */

const file = join(tmpdir(), 'enrichment-ledger-bench.pid')
const waitMsMax = 15 * 60_000
const pollMs = 500

export const takeTurn = async (tell: (line: string) => void): Promise<void> => {
  const deadline = Date.now() + waitMsMax
  let told = 0
  for (;;) {
    const holder = await holderOf()
    if (holder === 0) {
      rmSync(file, { force: true })
      try {
        await writeFile(file, String(process.pid), { flag: 'wx' })
        process.on('exit', () => rmSync(file, { force: true }))
        return
      } catch {
        // Another one was first.
      }
    } else if (holder !== told) tell(`waiting for the benchmark of process ${holder} to end`)
    told = holder
    if (Date.now() > deadline)
      throw new Error(
        `the benchmark of process ${holder} goes on for longer than ${waitMsMax / 60_000} minutes`,
      )
    await sleep(pollMs)
  }
}

/** The benchmark running now; 0 when there is none. */
const holderOf = async (): Promise<number> => {
  const pid = Number(await readFile(file, 'utf8').catch(() => ''))
  if (pid === 0 || Number.isNaN(pid)) return 0
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
  return command.includes('run.ts') ? pid : 0
}
