/**
 * `npm run lint`: every regular expression in the source must take linear time, because otherwise the author of a text
 * could block the process. Prints the file and line of each expression that might take longer, and exits with 1.
 *
 * An expression is skipped if a comment on its line, or on the line above, names the limit on its input:
 * `// recheck: at most 6 digits`.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runInNewContext } from 'node:vm'
import { check } from 'recheck'
import { type Expression, expressionsIn } from './expressions.ts'

/**
 * The checker as a native program takes a third of the processor time of the same checker in JavaScript, which is used on machines that have
 * no such program. Java is not used even if it is installed.
 */
process.env.RECHECK_BACKEND = nativeChecker() ? 'native' : 'pure'

function nativeChecker(): boolean {
  try {
    import.meta.resolve(`recheck-${process.platform}-${process.arch}/package.json`)
    return true
  } catch {
    return false
  }
}

const checkMaxMs = 60_000

/** Returns the fault of an expression, or null. */
export const faultOf = async ({ checked, excuse }: Expression): Promise<string | null> => {
  if (typeof checked === 'string') return checked
  if (excuse !== null) return /\d/.test(excuse) ? null : 'its excuse names no bound'
  const found = await check(checked.pattern, checked.flags, { timeout: checkMaxMs })
  if (found.status === 'safe') return null
  if (found.status === 'unknown') return `could not be checked: ${found.error.kind}`
  // A fault found by fuzzing is not proven. It counts only if the example text really is slow.
  if (found.checker === 'fuzz' && isQuick(checked, found.attack.string)) return null
  return `${found.complexity.summary}, for example over ${found.attack.pattern.slice(0, 200)}`
}

/** Attack texts have tens of thousands of characters, so they take seconds of processor time unless the time is linear. */
const quickMs = 500
/** On a busy machine, even a quick expression can take seconds. */
const attemptMaxMs = 5_000

const isQuick = ({ pattern, flags }: { pattern: string; flags: string }, text: string): boolean => {
  const tried = new RegExp(pattern, flags.replace(/[gy]/g, ''))
  const before = process.cpuUsage()
  try {
    runInNewContext('tried.test(text)', { tried, text }, { timeout: attemptMaxMs })
  } catch {
    return false
  }
  return process.cpuUsage(before).user < quickMs * 1_000
}

const lint = async (folders: readonly string[]): Promise<void> => {
  const root = fileURLToPath(new URL('../..', import.meta.url))
  const files = folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => /\.[cm]?[jt]s$/.test(file))
      .map((file) => `${folder}/${file.replaceAll('\\', '/')}`),
  )
  const faults = new Map<string, Promise<string | null>>()
  const found: string[] = []
  let expressions = 0
  for (const file of files.sort())
    for (const expression of expressionsIn(readFileSync(join(root, file), 'utf8'))) {
      expressions++
      const key = JSON.stringify([expression.checked, expression.excuse])
      const fault = faults.get(key) ?? faultOf(expression)
      faults.set(key, fault)
      const message = await fault
      if (message !== null)
        found.push(`${file}:${expression.line} ${expression.text.slice(0, 200)}\n  ${message}`)
    }
  for (const one of found) console.error(one)
  console.log(`${expressions} regular expressions in ${files.length} files, ${found.length} refused`)
  process.exitCode = found.length === 0 ? 0 : 1
}

if (import.meta.main) await lint(['src', 'projections'])
