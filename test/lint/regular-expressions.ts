/**
 * `npm run lint`: every regular expression of the source must take linear time, because the author of a text
 * could block the process otherwise. Prints file and line of those that may not, and exits with 1.
 *
 * An expression whose input is limited elsewhere is skipped if a comment on its line, or the one above, names the
 * limit: `// recheck: at most 6 digits`.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runInNewContext } from 'node:vm'
import { check } from 'recheck'
import { type Expression, expressionsIn } from './expressions.ts'

/** Pure JavaScript: the same on every machine, and no other program is started. */
process.env.RECHECK_BACKEND = 'pure'

const checkMaxMs = 60_000

/** The fault of an expression; null if there is none. */
export const faultOf = async ({ checked, excuse }: Expression): Promise<string | null> => {
  if (typeof checked === 'string') return checked
  if (excuse !== null) return /\d/.test(excuse) ? null : 'its excuse names no bound'
  const found = await check(checked.pattern, checked.flags, { timeout: checkMaxMs })
  if (found.status === 'safe') return null
  if (found.status === 'unknown') return `could not be checked: ${found.error.kind}`
  // Found by fuzzing, not proven: it counts only if the example really is slow.
  if (found.checker === 'fuzz' && isQuick(checked, found.attack.string)) return null
  return `${found.complexity.summary}, for example over ${found.attack.pattern.slice(0, 200)}`
}

/** Attack texts have tens of thousands of characters; more than linear time on them takes seconds. */
const quickMs = 500

const isQuick = ({ pattern, flags }: { pattern: string; flags: string }, text: string): boolean => {
  const tried = new RegExp(pattern, flags.replace(/[gy]/g, ''))
  try {
    runInNewContext('tried.test(text)', { tried, text }, { timeout: quickMs })
    return true
  } catch {
    return false
  }
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
