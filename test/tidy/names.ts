import { describe, expect, test } from 'vitest'
import { filesUnder, sources } from './source.ts'

describe('names', () => {
  test('files and folders are in kebab-case', () => {
    const migrations = filesUnder('migrations')
    expect(
      migrations.filter((path) => !/^migrations\/\d{4}_[a-z0-9]+(_[a-z0-9]+)*\.sql$/.test(path)),
    ).toEqual([])
    const violations = sources.filter(
      ({ path }) => !path.split('/').every((part) => /^[a-z0-9]+(-[a-z0-9]+)*(\.[a-z]+)?$/.test(part)),
    )
    expect(violations).toEqual([])
  })

  test('no vague names: each hides a missing noun', () => {
    const drawer = /(^|[-/.])(utils?|helpers?|common|misc|managers?|services?)([-/.]|$)/
    expect(sources.map(({ path }) => path).filter((path) => drawer.test(path))).toEqual([])
  })
})
