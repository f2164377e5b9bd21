import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'

/** The one stylesheet, read once. Its address changes with its content, so browsers may keep it for ever. */
const css = readFileSync(new URL('style.css', import.meta.url), 'utf8')
const path = '/assets/style.css'

export const stylesheet = {
  css,
  path,
  href: `${path}?v=${createHash('sha256').update(css).digest('hex').slice(0, 12)}`,
} as const
