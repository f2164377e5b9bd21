import { expect, test } from 'vitest'
import { createClosing, openingWith } from '../../src/foundation/closing.ts'

test('the last opened resource is closed first, and nothing is closed twice', async () => {
  const closed: string[] = []
  const closing = createClosing()
  for (const name of ['database', 'event log', 'host'])
    closing.add(async () => {
      closed.push(name)
    })
  await closing.close()
  await closing.close()
  expect(closed).toEqual(['host', 'event log', 'database'])
})

test('a resource that cannot be closed keeps no other open, and its error is reported', async () => {
  const closed: string[] = []
  const fault = new Error('it hangs')
  const closing = createClosing()
  closing.add(() => closed.push('database'))
  closing.add(() => {
    throw fault
  })
  closing.add(() => Promise.reject(fault))
  await expect(closing.close()).rejects.toMatchObject({ errors: [fault, fault] })
  expect(closed).toEqual(['database'])
})

test('a failure to open closes what was already open, and its own error is thrown', async () => {
  const closed: string[] = []
  const fault = new Error('the port is taken')
  const opening = openingWith(async (closing) => {
    closing.add(() => closed.push('database'))
    closing.add(() => Promise.reject(new Error('it cannot be closed either')))
    throw fault
  })
  await expect(opening).rejects.toBe(fault)
  expect(closed).toEqual(['database'])
})

test('a successful open leaves everything open', async () => {
  const closed: string[] = []
  const { close } = await openingWith(async (closing) => {
    closing.add(() => closed.push('database'))
    return closing
  })
  expect(closed).toEqual([])
  await close()
  expect(closed).toEqual(['database'])
})
