/**
 * `node generate.ts DOCUMENT FILE`: writes the types of an OpenAPI document, as `npx openapi-typescript DOCUMENT -o FILE` does. That
 * needs the compiler's interface for programs, which the compiler of this project no longer has: another package brings it.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { registerHooks } from 'node:module'

registerHooks({
  resolve: (specifier, context, next) =>
    next(specifier === 'typescript' ? '@ts-morph/common/dist/typescript.js' : specifier, context),
})
const { astToString, default: openapiTS } = await import('openapi-typescript')

const [document, file] = process.argv.slice(2)
if (document === undefined || file === undefined) throw new Error('name a document and a file')
await writeFile(file, astToString(await openapiTS(JSON.parse(await readFile(document, 'utf8')))))
