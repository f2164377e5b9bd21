import { expect, test } from 'vitest'
import { filesUnder, readText } from './source.ts'

/** What migrations may change, so that processes of the previous release continue to work: see src/guides/deployment.md, "What does a release promise?". */

const migrations = filesUnder('migrations')
  .filter((path) => path.endsWith('.sql'))
  .map((path) => ({ path, sql: readText(path) }))

/** The statements without comments and without the bodies of functions, which change nothing when they are created. */
const statementsOf = (sql: string): string =>
  sql
    .replaceAll(/(\$\w*\$)[\s\S]*?\1/g, "''")
    .replaceAll(/--.*$/gm, '')
    .replaceAll(/\/\*[\s\S]*?\*\//g, '')
    .toLowerCase()

/** Structures that a process of the previous release may still use. The second column is the effect on that process. */
const breaking: readonly (readonly [RegExp, string])[] = [
  [/\bdrop\s+(table|column|view|function|schema|index|constraint|trigger|type|sequence)\b/, 'drop'],
  [/\balter\s+table[^;]*\bdrop\b/, 'drop'],
  [/\balter\s+(column\s+)?\w+\s+(set\s+data\s+)?type\b/, 'type'],
  [/\bset\s+not\s+null\b/, 'not null'],
  [/\brename\b/, 'rename'],
  [/\badd\s+column\s+[^,;]*\bnot\s+null\b(?![^,;]*\bdefault\b)(?![^;]*\bdefault\b)/, 'not null'],
  [/\b(truncate|delete\s+from)\b(?!\s*(,|on|to))/, 'delete'],
]

/** A migration that is not additive states the reason, and the effect on running processes: `-- Not additive: …`. */
const excuse = /^-- Not additive: \S.{20,}/m

const notAdditive = (sql: string): string[] =>
  breaking
    .filter(([pattern]) => pattern.test(statementsOf(sql).replaceAll(/\b(grant|revoke)\b[^;]*;/g, '')))
    .map(([, what]) => what)

test('a migration only adds, or explains why not: processes of the previous release continue to work with it', () => {
  const unexcused = migrations.filter(({ sql }) => notAdditive(sql).length > 0 && !excuse.test(sql))
  expect(unexcused.map(({ path, sql }) => `${path}: ${[...new Set(notAdditive(sql))].join(', ')}`)).toEqual(
    [],
  )
})

test.each([
  ['alter table users drop column name;', ['drop']],
  ['ALTER TABLE users\n  DROP name;', ['drop']],
  ['drop table if exists users;', ['drop']],
  ['alter table users alter column name type int;', ['type']],
  ['alter table users alter name set data type int;', ['type']],
  ['alter table users alter column name set not null;', ['not null']],
  ['alter table users rename column name to label;', ['rename']],
  ['alter table users add column a int not null;', ['not null']],
  ['delete from users;', ['delete']],
  ['truncate users;', ['delete']],
  ['alter table users add column a int not null default 0;', []],
  ['create table a (type text not null, "drop" int);', []],
  ['revoke update, delete, truncate on a from public;', []],
  ['create function f() returns int language plpgsql as $$ begin delete from a; end $$;', []],
  ['-- drop table users;\ncreate index i on a (b);', []],
])('additive statements are distinguished from others: %s', (sql, found) => {
  expect([...new Set(notAdditive(sql))]).toEqual(found)
})
