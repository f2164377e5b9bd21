import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import { type ServedFile, servedFile } from '../documentation/file.ts'

/**
 * The stylesheet, icon and scripts of pages. They all come from this server, so that browsers contact no other host. Scripts need no build
 * step.
 */

const packageFile = (name: string, file: string): URL =>
  new URL(file, pathToFileURL(createRequire(import.meta.url).resolve(name)))

const own = (file: string): URL => new URL(file, import.meta.url)

const files = {
  'style.css': [packageFile('uplot', 'uPlot.min.css'), own('style.css')],
  'mark.svg': [own('browser/mark.svg')],
  'page.js': [own('browser/page.js')],
  'plots.js': [own('browser/plots.js')],
  'uplot.js': [packageFile('uplot', 'uPlot.esm.js')],
  'htmx.js': [packageFile('htmx.org', 'htmx.esm.min.js')],
  'more.js': [own('browser/more.js')],
} as const satisfies Readonly<Record<string, readonly URL[]>>
export type AssetName = keyof typeof files

const types: Readonly<Record<string, string>> = {
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
}

const assets: ReadonlyMap<string, ServedFile> = new Map(
  Object.entries(files).map(([name, urls]) => [
    name,
    servedFile(
      types[name.slice(name.lastIndexOf('.') + 1)] ?? '',
      Buffer.from(urls.map((url) => readFileSync(url, 'utf8')).join('\n')),
    ),
  ]),
)

/** All assets have the same version, so that a script imports only scripts of its own release. */
export const assetVersion: string = [...assets.values()]
  .reduce((hash, { body }) => hash.update(body), createHash('sha256'))
  .digest('hex')
  .slice(0, 12)

export const assetOf = (name: string): ServedFile | undefined => assets.get(name)

export const assetHref = (name: AssetName): string => `/assets/${assetVersion}/${name}`
