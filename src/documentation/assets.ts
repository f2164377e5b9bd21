import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'

/** The files that pages load. An address changes with its file, so browsers may keep it for ever. */

type Asset = {
  readonly path: string
  /** With what tells this content from any other. */
  readonly href: string
  readonly type: string
  /** What was compressed once is kept; the rest is read when it is asked for. */
  readonly body: (compressed: boolean) => Promise<Buffer>
}

const compress = promisify(gzip)
const css = 'text/css; charset=utf-8'
const javascript = 'text/javascript; charset=utf-8'

const assetOf = (name: string, type: string, file: string | URL): Asset => {
  const path = `/docs/assets/${name}`
  const digest = createHash('sha256').update(readFileSync(file)).digest('hex').slice(0, 12)
  let small: Promise<Buffer> | undefined
  return {
    ...{ path, type, href: `${path}?v=${digest}` },
    body: (compressed) => {
      if (!compressed) return readFile(file)
      small ??= readFile(file).then((bytes) => compress(bytes))
      return small
    },
  }
}

const swagger = (name: string): string => createRequire(import.meta.url).resolve(`swagger-ui-dist/${name}`)

export const stylesheet = assetOf('style.css', css, new URL('style.css', import.meta.url))
export const referenceAssets = {
  styles: assetOf('swagger-ui.css', css, swagger('swagger-ui.css')),
  library: assetOf('swagger-ui-bundle.js', javascript, swagger('swagger-ui-bundle.js')),
  script: assetOf('reference.js', javascript, new URL('reference.js', import.meta.url)),
} as const

export const assets: readonly Asset[] = [stylesheet, ...Object.values(referenceAssets)]
