/**
 * `node generate.ts DOCUMENT FILE` writes an OpenAPI document's types, like `npx openapi-typescript DOCUMENT -o FILE`.
 * openapi-typescript needs TypeScript's programming interface. This project's compiler no longer has one, so a separate package
 * provides it.
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
