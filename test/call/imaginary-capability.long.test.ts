/**
 * No other file names the capability in this test, so everything that the service does for it follows from its definition. It
 * uses the facts and the tariff of whoami, because facts are part of the event vocabulary.
 */
import pino from 'pino'
import { expect, test } from 'vitest'
import { type Capability, SettingFault } from '../../src/call/capability.ts'
import { ConfigError } from '../../src/config.ts'
import { createMetrics } from '../../src/metrics/metrics.ts'
import { openCapabilities } from '../../src/start/capabilities.ts'
import { someDocument } from '../support/call-document.ts'
import { type House, houseForFile, until } from '../support/house.ts'

const happened: string[] = []

const imaginary: Capability<{ readonly LOG_LEVEL: string }> = {
  hosts: ['api'],
  document: { tag: 'echo', about: 'Texts sent back.', calls: [], examples: {} },
  open: ({ settings, queue, meters }) => {
    if (settings.LOG_LEVEL === 'trace') throw new SettingFault('LOG_LEVEL: too much to say')
    const asked = meters.counter({ name: 'echoes_total', help: 'Texts sent back' })
    return {
      forms: [
        {
          capability: 'whoami',
          permission: null,
          method: 'POST',
          path: '/v1/echo',
          document: someDocument,
          parse: ({ text }) => ({ input: String(text) }),
          rehearse: 'own',
          gather: async (text: string) => {
            asked()
            await queue.send('echo-again', text, { afterSeconds: 0, key: text })
            return text
          },
          decide: (text: string) => ({ result: { text }, facts: { kind: 'whoami' } }),
        },
      ],
      jobs: {
        'echo-again': {
          concurrencyMax: 1,
          expireSeconds: 10,
          run: async (text) => happened.push(`again: ${text}`),
        },
      },
      reload: async () => void happened.push('read again'),
      close: async () => void happened.push('closed'),
    }
  },
}

const house = await houseForFile({
  capabilities: [imaginary],
  environment: { ROLES: 'api,dashboard,projector,jobs' },
})

const metrics = async (): Promise<string> => (await fetch(`${house.metricsUrl}/metrics`)).text()

test('its calls are answered, recorded, rated and measured, and its jobs run', async () => {
  const partner = await house.partner({ credits: '5' })
  const answer = await house.post(partner, '/v1/echo', { text: 'hello' })
  expect(answer).toMatchObject({ status: 200, body: { result: { text: 'hello' } } })
  expect(answer.headers.get('credits-remaining')).toBe('5')
  expect(answer.events).toMatchObject([
    {
      type: 'KeyUsed',
      data: { outcome: 'answered', facts: { kind: 'whoami' }, free_by: { rule: 'whoami' } },
    },
  ])
  expect(await metrics()).toMatch(/^enrichment_echoes_total 1$/m)
  await until('the job is done', async () => happened.includes('again: hello'))
})

const openAs = (changed: Partial<House['config']>) =>
  openCapabilities([imaginary], {
    foundation: house.foundation,
    config: { ...house.config, ...changed },
    logger: pino({ level: 'silent' }),
    metrics: createMetrics(),
  })

test('it reloads its files and closes when the service does', async () => {
  happened.length = 0
  const open = await openAs({})
  await open.reload()
  await open.close()
  expect(happened).toEqual(['read again', 'closed'])
})

test('it is not opened in a process that neither answers its calls nor runs jobs', async () => {
  happened.length = 0
  const open = await openAs({ ROLES: ['dashboard', 'projector'] })
  expect(open.formsOn('dashboard')).toEqual([])
  await open.close()
  expect(happened).toEqual([])
})

test('a setting that it refuses is a configuration error', async () => {
  await expect(openAs({ LOG_LEVEL: 'trace' })).rejects.toThrow(new ConfigError('LOG_LEVEL: too much to say'))
})
