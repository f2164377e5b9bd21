import { networkInterfaces } from 'node:os'
import { expect, test } from 'vitest'
import { peerHostOf } from '../../src/peers/address.ts'

const database = 'postgres://user:secret@postgres:5432/enrichment'
const routedBy =
  (address: string | null, asked: string[] = []) =>
  async (host: string): Promise<string | null> => {
    asked.push(host)
    return address
  }

test('an address or a name is what it says, and nothing is looked up', async () => {
  const asked: string[] = []
  for (const setting of ['127.0.0.1', '10.0.0.7', '2001:db8::7', 'api-1.internal'])
    expect(await peerHostOf(setting, database, routedBy('10.9.9.9', asked))).toEqual({
      listen: setting,
      dial: setting,
    })
  expect(asked).toEqual([])
})

test('auto listens on the address by which the database is reached, and on no other', async () => {
  const asked: string[] = []
  expect(await peerHostOf('auto', database, routedBy('172.18.0.5', asked))).toEqual({
    listen: '172.18.0.5',
    dial: '172.18.0.5',
  })
  expect(asked).toEqual(['postgres'])
})

test('auto without a way to the database stops the start, names the variable and no password', async () => {
  const refused = peerHostOf('auto', database, routedBy(null))
  await expect(refused).rejects.toThrow(/^PEER_HOST: auto/)
  await expect(refused).rejects.not.toThrow(/secret/)
})

test('all addresses: others dial the one by which the database is reached, if it is of that family', async () => {
  expect(await peerHostOf('0.0.0.0', database, routedBy('172.18.0.5'))).toEqual({
    listen: '0.0.0.0',
    dial: '172.18.0.5',
  })
  expect(await peerHostOf('::', database, routedBy('2001:db8::5'))).toEqual({
    listen: '::',
    dial: '2001:db8::5',
  })
})

test.each(['127.0.0.1', '2001:db8::5', null])(
  'all addresses, and the way to the database is %s: the first address of that family that others can dial',
  async (route) => {
    const { listen, dial } = await peerHostOf('0.0.0.0', database, routedBy(route))
    const outer = Object.values(networkInterfaces())
      .flatMap((all) => all ?? [])
      .find(({ family, internal }) => family === 'IPv4' && !internal)
    expect(listen).toBe('0.0.0.0')
    if (outer === undefined) expect(dial).not.toMatch(/^(127\.|0\.0\.0\.0)/)
    else expect(dial).toBe(outer.address)
  },
)

test('the way to a database on this machine is its loopback address; through a file there is none', async () => {
  expect(await peerHostOf('auto', 'postgres://user@127.0.0.1:5432/enrichment')).toMatchObject({
    dial: '127.0.0.1',
  })
  await expect(peerHostOf('auto', 'postgres://user@/enrichment?host=/run/postgresql')).rejects.toThrow(
    /^PEER_HOST/,
  )
  await expect(peerHostOf('auto', 'postgres://user@no-such-host.invalid/enrichment')).rejects.toThrow(
    /^PEER_HOST/,
  )
})
