/** The pixel commands share their rules, counters and events with the dashboard and the API. */
import pino from 'pino'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { z } from 'zod'
import type { CommandContext } from '../../src/cli/command.ts'
import { givenOf } from '../../src/cli/parse.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { pixelStream } from '../../src/events/streams.ts'
import { commands } from '../cli/commands.ts'
import { type House, openHouse, type Partner, until } from '../support/house.ts'

let house: House
let partner: Partner
beforeAll(async () => {
  house = await openHouse()
  partner = await house.partner({ permissions: ['pixel_control'], credits: '10' })
})
afterAll(() => house?.close())

const contextOf = (): CommandContext => ({
  ...{ config: house.config, logger: pino({ level: 'silent' }), json: true },
  foundation: async () => ({ ...house.foundation, operator: { actor: 'user:ada', role: 'operations' } }),
  ...{ progress: () => undefined, write: async () => undefined, ask: async () => true },
  leaves: () => undefined,
})

const typed = (name: string, words: readonly string[]) => {
  const command = commands.find((one) => one.name === name)
  if (command === undefined) throw new Error(`there is no command ${name}`)
  return { command, given: givenOf(command, [partner.organizationId, ...words]).given }
}
const run = async (name: string, ...words: string[]) => {
  const { command, given } = typed(name, words)
  return (await command.run(contextOf(), given)) as { json: Record<string, unknown>; lines: string[] }
}
const planned = async (name: string, ...words: string[]) => {
  const { command, given } = typed(name, words)
  if (command.changes === 'nothing') throw new Error(`${name} changes nothing`)
  return (await command.changes.plan(contextOf(), given)).says
}
const events = async () =>
  (await house.foundation.eventLog.read(pixelStream(partner.organizationId), { max: 100 }).catch(() => []))
    .map(decodeEvent)
    .map(({ type, data, metadata }) => ({ type, data, by: metadata.actor }))
const fires = async (url: string) => {
  const { status, body } = await house.post(partner, '/pixel/decide', { url })
  expect(status).toBe(200)
  return z.object({ fire: z.boolean() }).parse(body.result).fire
}

test('at first there are no rules, and an unknown organization is an error', async () => {
  expect((await run('pixel rules')).lines).toEqual(['No rules: the pixel fires everywhere.'])
  expect((await run('pixel hits')).json).toMatchObject({ fired: 0, refused: 0, by_day: [], more: false })
  const { command } = typed('pixel rules', [])
  await expect(
    command.run(contextOf(), givenOf(command, ['org_01J00000000000000000000000']).given),
  ).rejects.toThrow('there is no organization org_01J00000000000000000000000')
})

test('a plan shows the change without making it; invalid input is refused with the same error as in the API', async () => {
  expect(await planned('pixel limit', 'Shop.Example.com.', '2', 'day')).toEqual([
    expect.stringMatching(/fires at most 2 times per day on shop\.example\.com and its subdomains\.$/),
  ])
  await expect(planned('pixel limit', 'example.com', '0', 'day')).rejects.toThrow('whole number from 1')
  await expect(planned('pixel limit', 'example.com', '2', 'week')).rejects.toThrow(
    '"week" is not one of day, month',
  )
  await expect(run('pixel block', 'com')).rejects.toThrow('the value must be a registrable domain')
  expect(await events()).toEqual([])
})

test('changes are events with their author, apply to hits, and repeating one changes nothing', async () => {
  expect((await run('pixel limit', 'shop.example.com', '2', 'day')).json).toMatchObject({ changed: true })
  expect((await run('pixel limit', 'shop.example.com', '2', 'day')).json).toMatchObject({ changed: false })
  expect((await run('pixel block', 'blocked-domain.com')).json).toMatchObject({ changed: true })
  expect(await events()).toMatchObject([
    { type: 'PixelLimitSet', data: { domain: 'shop.example.com', number: 2 }, by: 'user:ada' },
    { type: 'PixelBlocked', data: { domain: 'blocked-domain.com' }, by: 'user:ada' },
  ])
  await until('the rules are followed', async () => !(await fires('https://blocked-domain.com/')))
  expect(await fires('https://shop.example.com/')).toBe(true)
  const { rules, count, more } = (await run('pixel rules')).json
  expect([count, more]).toEqual([2, false])
  expect(rules).toMatchObject([
    { domain: 'blocked-domain.com', rule: 'block', period: null, used: null, set_by: 'user:ada' },
    { domain: 'shop.example.com', rule: 'limit', period: 'day', number: 2, used: 1, set_by: 'user:ada' },
  ])
  expect((await run('pixel rules', 'shop')).json.rules).toHaveLength(1)
  const { command } = typed('pixel rules', [])
  const one = await command.run(contextOf(), givenOf(command, [partner.organizationId, '--max', '1']).given)
  expect(one.json).toMatchObject({ rules: [{ domain: 'blocked-domain.com' }], count: 2, more: true })
})

test('hits are shown by day and by the domain of the rule; the list can be continued', async () => {
  await house.projected()
  const { json } = await run('pixel hits')
  const today = expect.stringMatching(/^\d{4}-\d{2}-\d{2}$/)
  expect(json.by_day).toMatchObject([
    { day: today, domain: 'shop.example.com', fired: 1, refused: 0 },
    { day: today, domain: 'blocked-domain.com' },
  ])
  expect(json).toMatchObject({ days_summed: 30, more: false })
  const { command } = typed('pixel hits', [])
  const one = await command.run(contextOf(), givenOf(command, [partner.organizationId, '--max', '1']).given)
  expect(one.json).toMatchObject({ by_day: [{ domain: 'shop.example.com' }], more: true })
  expect((await run('pixel hits', 'blocked-domain.com')).json.by_day).toHaveLength(1)
  expect((await run('pixel hits', '\0')).json.by_day).toHaveLength(2)
})

test('a rule can be removed', async () => {
  expect((await run('pixel unblock', 'blocked-domain.com')).json).toMatchObject({ changed: true })
  expect((await run('pixel unlimit', 'shop.example.com', 'day')).lines).toEqual([
    'From the next hit on, the pixel has no limit per day on shop.example.com.',
  ])
  expect((await run('pixel unlimit', 'shop.example.com', 'day')).json).toMatchObject({ changed: false })
  expect((await run('pixel rules')).json.count).toBe(0)
})
