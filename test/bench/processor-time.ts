import { readdirSync, readFileSync } from 'node:fs'
import type { Client } from 'pg'

/** Processor time of processes from /proc. Linux only. */

/** USER_HZ is 100 on every Linux system that runs Node. */
const tickMs = 10

type Stat = { readonly parent: number; readonly own: number; readonly ended: number }

const statOf = (pid: number): Stat | null => {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The name in parentheses can contain anything, so fields are counted after it. The first is the state.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    const at = (i: number): number => Number(fields[i])
    return { parent: at(1), own: at(11) + at(12), ended: at(13) + at(14) }
  } catch {
    return null
  }
}

/** User and system time of one process, in milliseconds. */
export const processorMsOf = (pid: number): number => (statOf(pid)?.own ?? 0) * tickMs

/** User and system time of a process, all its children, and children that have ended. */
export const processorMsOfTree = (pid: number): number => {
  const root = statOf(pid)
  if (root === null) return 0
  let ticks = root.own + root.ended
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    const stat = statOf(Number(name))
    if (stat?.parent === pid) ticks += stat.own + stat.ended
  }
  return ticks * tickMs
}

/** The server process of a connection, or 0 if the server runs on another machine. */
export const postmasterOf = async (client: Client): Promise<number> => {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
  const pid = rows[0]?.pid ?? 0
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').startsWith('postgres')
      ? (statOf(pid)?.parent ?? 0)
      : 0
  } catch {
    return 0
  }
}

/** Resident memory of one process, in megabytes. */
export const residentMbOf = (pid: number): number => {
  const kb = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]
  return Number(kb ?? 0) / 1024
}
