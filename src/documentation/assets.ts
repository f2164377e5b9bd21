import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { type ServedFile, servedFile } from './file.ts'

type Asset = {
  readonly path: string
  /** The URL, which contains a hash of the content, so that browsers can cache the file forever. */
  readonly href: string
  readonly whole: ServedFile
  /** The compressed file, created on the first request. */
  readonly compressed: () => Promise<ServedFile>
}

const compress = promisify(gzip)
const css = 'text/css; charset=utf-8'
const javascript = 'text/javascript; charset=utf-8'

const assetOf = (name: string, type: string, file: string | URL): Asset => {
  const path = `/docs/assets/${name}`
  const whole = servedFile(type, readFileSync(file))
  let small: Promise<ServedFile> | undefined
  return {
    path,
    whole,
    href: `${path}?v=${whole.digest}`,
    compressed: () => {
      small ??= compress(whole.body).then((body) => servedFile(type, body))
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
