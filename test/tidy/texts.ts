import { describe, expect, test } from 'vitest'
import { filesUnder, readText, sources } from './source.ts'

describe('forbidden text in the source', () => {
  const unwanted: Record<string, RegExp> = {
    'a note to self': /\b(TODO|FIXME|XXX|HACK)\b/,
    'a duration measured by the time of day, which may be set':
      /Date\.now\(\)\s*[<>]|\b(?:deadline|end|until|started)\w* = Date\.now\(\)/,
    'output past the logger': /\bconsole\.(log|debug|info|warn|error)\b/,
  }

  test.each(Object.entries(unwanted))('%s', (what, pattern) => {
    const where = what === 'a note to self' ? 'text' : 'bare'
    expect(sources.filter((source) => pattern.test(source[where])).map(({ path }) => path)).toEqual([])
  })

  test('paths of a machine, or hosts of a package registry', () => {
    const documents = [
      'package.json',
      'README.md',
      ...filesUnder('src/guides'),
      'docker-compose.yml',
      ...filesUnder('migrations'),
      ...filesUnder('.ci'),
    ]
    const machinePath = /(^|[\s'"`(=:])\/(home|root|work|Users|mnt|tmp|usr\/local|private)\//m
    const registryHost = new RegExp(
      [
        'registry\\.[a-z0-9-]+\\.[a-z]{2,}',
        'artifactory',
        'verdaccio',
        'jfrog',
        'npmmirror',
        'pypi\\.org',
      ].join('|'),
      'i',
    )
    const found = [...sources.map(({ path }) => path), ...documents].filter((path) => {
      let text: string
      try {
        text = readText(path)
      } catch {
        return false
      }
      return machinePath.test(text) || registryHost.test(text)
    })
    expect(found).toEqual([])
  })
})
