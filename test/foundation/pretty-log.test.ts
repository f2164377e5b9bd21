import pino from 'pino'
import { expect, test } from 'vitest'
import { loggedError, prettyLine } from '../../src/foundation/logger.ts'

const shown = (log: (logger: pino.Logger) => void, colours = false): string => {
  let text = ''
  const pretty = prettyLine({ colours })
  log(
    pino(
      { level: 'debug', serializers: { err: loggedError } },
      {
        write: (line) => {
          text += pretty(line)
        },
      },
    ),
  )
  return text
}

test('a line has a time, a level, a sentence and its fields', () => {
  expect(shown((logger) => logger.warn({ port: 3000 }, 'the port is taken'))).toMatch(
    /^\[\d\d:\d\d:\d\d\.\d{3}\] WARN: the port is taken \{"port":3000\}\n$/,
  )
  const coloured = '\u001b['
  expect(shown((logger) => logger.warn('x'), true)).toContain(coloured)
  expect(shown((logger) => logger.warn('x'))).not.toContain(coloured)
})

test('an error is shown with its stack', () => {
  const text = shown((logger) => logger.error({ err: new TypeError('it broke') }, 'a call failed'))
  expect(text).toContain('TypeError: it broke\n')
  expect(text).toMatch(/\n +at /)
})

test('foreign text neither moves the cursor nor breaks the line', () => {
  const hostile = 'a\u001b[2Jb\u0007c\rd\be\u009bf\u007fg\\u001bh'
  for (const text of [
    shown((logger) => logger.info({ path: hostile }, 'x')),
    shown((logger) => logger.info(hostile)),
    shown((logger) => logger.error({ err: new Error(hostile) }, 'x')),
  ]) {
    expect(text.replaceAll('\n', '')).not.toMatch(/\p{Cc}/u)
    expect(text).toContain('\u{fffd}[2Jb')
  }
})

test('a line that is not JSON is shown unchanged', () => {
  expect(prettyLine({ colours: false })('not json\n')).toContain('not json')
})
