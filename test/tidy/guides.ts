import { existsSync, readdirSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { describe, expect, test } from 'vitest'
import { adminPathOf, jobPath } from '../../src/admin-api/openapi.ts'
import { declarations } from '../../src/administration/declarations.ts'
import { errorCatalogue } from '../../src/call/errors.ts'
import { emailValidationResult } from '../../src/capabilities/email-validation/contract.ts'
import { ipLookupResult } from '../../src/capabilities/ip-lookup/contract.ts'
import { whoamiBody } from '../../src/capabilities/whoami/contract.ts'
import { findCommand, optionsOf } from '../../src/cli/parse.ts'
import { parseConfig } from '../../src/config.ts'
import { commands as all } from '../cli/commands.ts'
import { filesUnder, readText, root, sources } from './source.ts'

/** Every name in README and the guides exists, and nothing that a reader needs is missing. */

const guides = filesUnder('src/guides').filter((path) => path.endsWith('.md'))
const documents = new Map(['README.md', ...guides].map((path) => [path, readText(path)]))
const partners = documents.get('src/guides/partners.md') ?? ''
const errors = documents.get('src/guides/errors.md') ?? ''
const readme = documents.get('README.md') ?? ''
const configuration = documents.get('src/guides/configuration.md') ?? ''
const development = documents.get('src/guides/development.md') ?? ''

/** Variables that documents name, but that the tests, Node.js or Docker Compose read. */
const readElsewhere = ['TEST_EVENTSTORE_URL', 'NO_COLOR', 'COMPOSE_PROFILES']

const withoutBlocks = (text: string): string => text.replace(/^```[\s\S]*?^```$/gm, '')
const blocksOf = (text: string, language: string): string[] =>
  [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)].flatMap(([, name, block = '']) =>
    name === language ? [block] : [],
  )
const spansOf = (text: string): string[] =>
  [...withoutBlocks(text).matchAll(/`([^`\n]+)`/g)].map(([, span = '']) => span)

const headingsOf = (text: string): string[] =>
  [...withoutBlocks(text).matchAll(/^#{1,6} (.+)$/gm)].map(([, heading = '']) => heading)

const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')

const inEvery = (find: (text: string, path: string) => readonly string[]): string[] =>
  [...documents].flatMap(([path, text]) => find(text, path).map((found) => `${path}: ${found}`))

describe('the README and the guides', () => {
  test('the README links every guide', () => {
    expect(guides.filter((path) => !readme.includes(`](${path})`))).toEqual([])
  })

  test('the map of the folders is the map of the tree', () => {
    const map = /^## Map\n+```\n([\s\S]*?)^```$/m.exec(development)?.[1] ?? ''
    const mapped = map.split('\n').filter(Boolean)
    const folders = ['projections', 'migrations', 'test']
    const inSrc = readdirSync(join(root, 'src')).map((name) => `src/${name}`)
    expect(mapped.map((line) => line.split(' ')[0]).sort()).toEqual([...inSrc, ...folders].sort())
    expect(mapped.filter((line) => !/^\S+ {2,}\S.{5,}$/.test(line))).toEqual([])
  })

  test('every link leads to a file and a heading that exist', () => {
    const broken = inEvery((text, path) =>
      [...withoutBlocks(text).matchAll(/\]\(([^)\s]+)\)/g)]
        .map(([, link = '']) => link)
        .filter((link) => !link.startsWith('https://'))
        .filter((link) => {
          const [file = '', anchor] = link.split('#')
          const target = file === '' ? path : posix.join(dirname(path), file)
          if (!existsSync(join(root, target))) return true
          return anchor !== undefined && !headingsOf(readText(target)).map(anchorOf).includes(anchor)
        }),
    )
    expect(broken).toEqual([])
  })

  test('no two headings of a document have the same anchor', () => {
    const doubled = inEvery((text) => {
      const anchors = headingsOf(text).map(anchorOf)
      return anchors.filter((anchor, i) => anchors.indexOf(anchor) !== i)
    })
    expect(doubled).toEqual([])
  })

  test('every file of the repository that a document names exists', () => {
    const missing = inEvery((text) =>
      [...text.matchAll(/\b(?:src|projections|test|migrations|\.ci)\/[\w./-]*\w/g)]
        .map(([path]) => path)
        .filter((path) => !existsSync(join(root, path))),
    )
    expect(missing).toEqual([])
  })

  test('every npm script that a document names exists', () => {
    const { scripts } = JSON.parse(readText('package.json'))
    const missing = inEvery((text) =>
      [...text.matchAll(/\bnpm (?:run (?:-s )?([a-z:]+)|(start|test)\b)/g)]
        .map(([, run, short]) => run ?? short ?? '')
        .filter((name) => !Object.hasOwn(scripts, name)),
    )
    expect(missing).toEqual([])
  })

  test('the source names only existing sections of guides, and never the README', () => {
    const others = ['docker-compose.yml', ...filesUnder('test').filter((path) => !path.includes('tidy'))]
    const texts = [
      ...sources.map(({ path, text }) => [path, text]),
      ...others.map((path) => [path, readText(path)]),
    ]
    const broken = texts.flatMap(([path = '', text = '']) => [
      ...[...text.matchAll(/\b(src\/guides\/[\w-]+\.md),[\s*#/]+"([^"]+)"/g)]
        .filter(([, guide = '', heading = '']) => !headingsOf(documents.get(guide) ?? '').includes(heading))
        .map(([named]) => `${path}: ${named}`),
      ...(/\bREADME, "/.test(text) || (path.startsWith('src/') && text.includes('README'))
        ? [`${path}: README`]
        : []),
    ])
    expect(broken).toEqual([])
  })
})

describe('commands in the guides', () => {
  const commands = new Set(all.map(({ name }) => name))
  const nouns = new Set([...commands].map((name) => name.split(' ')[0]))
  const isCommand = (words: string): boolean => {
    const [noun = '', verb = ''] = words.split(' ')
    return commands.has(`${noun} ${verb}`) || commands.has(noun)
  }

  const isHelp = (words: string): boolean => {
    const [noun = '', option] = words.split(' ')
    return nouns.has(noun) && option === '--help'
  }

  test('there are commands', () => {
    expect(commands.size).toBeGreaterThan(25)
    expect(nouns).toContain('ledger')
  })

  test('every command in an example exists', () => {
    const typed = inEvery((text) =>
      [...text.matchAll(/(?:cli -- |run --rm (?:--no-deps )?migrate )([a-z-]+(?: [a-z-]+)?)/g)]
        .map(([, words = '']) => words)
        .filter((words) => !words.startsWith('--') && !isHelp(words) && !isCommand(words)),
    )
    expect(typed).toEqual([])
  })

  test('every option of a command that a text names exists', () => {
    const wrong = inEvery((text) => {
      const typed = [...text.matchAll(/(?:cli -- |\bmigrate |^enl )([a-z].*)/gm)].map(
        ([, words = '']) => words,
      )
      return [...typed, ...spansOf(text)].flatMap((line) => {
        const words = line.replace(/\s#.*/, '').split(/\s+/)
        const command = findCommand(words, all)?.command
        if (command === undefined) return []
        const known = optionsOf(command).map((name) => `--${name}`)
        return words
          .filter((word) => /^--[a-z-]+$/.test(word) && !known.includes(word))
          .map((word) => `${command.name} ${word}`)
      })
    })
    expect(wrong).toEqual([])
  })

  test('every noun with a verb in a text is a command', () => {
    const named = inEvery((text) =>
      spansOf(text).filter((span) => {
        const [noun = '', verb = ''] = span.split(' ')
        return nouns.has(noun) && /^[a-z][a-z-]*$/.test(verb) && !isCommand(`${noun} ${verb}`)
      }),
    )
    expect(named).toEqual([])
  })
})

describe('configuration in the guide', () => {
  const defaults: Readonly<Record<string, unknown>> = parseConfig({})
  /** The names are read from the source, because `parseConfig` does not expose the members of the zod schema. */
  const variables = [...readText('src/config.ts').matchAll(/^ {2}([A-Z][A-Z_]+): /gm)].map(
    ([, name = '']) => name,
  )
  const rows = [...configuration.matchAll(/^\| (`[A-Z_]+`(?:, `[A-Z_]+`)*) \| ([^|]+) \|/gm)].map(
    ([, names = '', given = '']) => ({
      names: names.split(', ').map((name) => name.slice(1, -1)),
      given: given.split(', ').map((text) => text.trim().replaceAll('`', '')),
    }),
  )

  test('the table has every variable, and no other', () => {
    expect(variables.length).toBeGreaterThan(25)
    expect(rows.flatMap(({ names }) => names).sort()).toEqual([...variables].sort())
  })

  test('the defaults in the table are the defaults of the service', () => {
    const shown = (value: unknown): string =>
      Array.isArray(value) ? value.join(',') || 'none' : String(value)
    const different = rows.flatMap(({ names, given }) =>
      names
        .map((name, i) => ({
          name,
          is: defaults[name],
          says: names.length === 1 ? given.join(', ') : given[i],
        }))
        .filter(({ is, says }) => is !== undefined && shown(is) !== says)
        .map(({ name, is, says }) => `${name}: the table says ${says}, the service ${shown(is)}`),
    )
    expect(different).toEqual([])
  })

  test('no document names a variable that is never read', () => {
    const compose = readText('docker-compose.yml')
    const unknown = inEvery((text) =>
      [...new Set(text.match(/\b[A-Z]{2,}(?:_[A-Z]{2,})+\b/g) ?? [])].filter(
        (name) => !variables.includes(name) && !compose.includes(name) && !readElsewhere.includes(name),
      ),
    )
    expect(unknown).toEqual([])
  })
})

describe('the guides for partners', () => {
  test('list the error codes of the catalogue, with their statuses and categories', () => {
    const listed = [
      ...errors.matchAll(/^\| `([A-Z]+_\d{3})` \| (\d{3})(?:, \d{3})* \| (\w+) \| [^|]+ \|/gm),
    ].map(([, code, status, error]) => `${code} ${status} ${error}`)
    const catalogued = Object.entries(errorCatalogue).map(
      ([code, { status, error }]) => `${code} ${status} ${error}`,
    )
    expect(listed.sort()).toEqual(catalogued.sort())
  })

  test('name no code that does not exist', () => {
    const unknown = inEvery((text) =>
      (text.match(/\b[A-Z]{2,}_\d{3}\b/g) ?? []).filter((code) => !Object.hasOwn(errorCatalogue, code)),
    )
    expect(unknown).toEqual([])
  })

  test('every code in the source is in the catalogue, and every code of the catalogue is used', () => {
    const used = new Set(
      sources.flatMap(({ code }) =>
        [...code.matchAll(/'([A-Z]{2,}_\d{3})'/g)].map(([, found]) => found ?? ''),
      ),
    )
    expect([...used].filter((code) => !Object.hasOwn(errorCatalogue, code))).toEqual([])
    expect(Object.keys(errorCatalogue).filter((code) => !used.has(code))).toEqual([])
  })

  test('show answers from the service', () => {
    const answers = [partners, errors].flatMap((text) => blocksOf(text, 'json'))
    const [lookup, validation, whoami, error] = answers.map((block) => JSON.parse(block))
    expect(ipLookupResult.strict().parse(lookup.result)).toEqual(lookup.result)
    expect(emailValidationResult.strict().parse(validation.result)).toEqual(validation.result)
    expect(whoamiBody.strict().parse(whoami)).toEqual(whoami)
    expect(error.error).toBe(errorCatalogue.IP_001.error)
    expect(Object.keys(error)).toEqual(['error', 'message', 'code', 'request_id', 'details'])
  })

  test('show only requests to existing routes, with valid JSON bodies', () => {
    const routes = new Set(
      sources.flatMap(({ code }) =>
        [...code.matchAll(/'(\/(?:v1|pixel|whoami|readyz|metrics)[\w/:]*)'/g)].map(([, path = '']) => path),
      ),
    )
    const matches = (route: string, path: string): boolean =>
      new RegExp(`^${route.replaceAll(/:\w+/g, '[^/]+')}$`).test(path)
    const requests = inEvery((text) =>
      blocksOf(text, 'sh')
        .flatMap((block) => block.replaceAll('\\\n', '').split('\n'))
        .filter((line) => line.startsWith('curl'))
        .filter((line) => {
          const path = /(?:localhost:\d+|dashboard\.example\.com)(\/[^\s?]*)/.exec(line)?.[1] ?? ''
          const body = / -d '([^']*)'/.exec(line)?.[1]
          if (body !== undefined) JSON.parse(body)
          return (
            !declarations.some((one) => adminPathOf(one) === path) &&
            !matches(`${jobPath}/:id`, path) &&
            ![...routes].some((route) => matches(route, path))
          )
        }),
    )
    expect(requests).toEqual([])
  })
})
