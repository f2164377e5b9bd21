/** A password must be long enough, and must not be one that attackers try first. */
import { describe, expect, test } from 'vitest'
import { checkPassword } from '../../src/administration/users/chosen-password.ts'

const names = ['ada.lovelace@example.com', 'Northwind Traders']
const check = (password: string) => checkPassword('new', password, names)

describe('a password is refused', () => {
  test.each([
    'passwordpassword',
    'P@ssw0rdP@ssw0rd',
    '1234567890123456',
    'qwertyuiopasdfgh',
    '1q2w3e4r5t6y7u8i',
  ])('that is common, or built from common parts: %s', async (password) => {
    await expect(check(password)).rejects.toThrow('too easy to guess')
  })

  test.each(['ada.lovelace@example.com', 'LovelaceAda2026', 'northwindtraders1', 'enrichmentledger'])(
    'that contains a name of the person, the organization or the product: %s',
    async (password) => {
      await expect(check(password)).rejects.toThrow('too easy to guess')
    },
  )

  test('with fourteen characters, for any number of bytes', async () => {
    await expect(check('kÄ9#😀vT2!xQ7§b')).rejects.toThrow('at least 15 characters')
    await expect(check('x'.repeat(1_025))).rejects.toThrow('at most 1024')
  })
})

test.each([
  'correct horse battery staple',
  'four words and a number 7',
  'x7Kd92mVqLw0pZt',
  'lovelace wrote seven programs',
  'горячий чай с лимоном',
])('a long password that attackers do not try first is accepted: %s', async (password) => {
  expect(await check(password)).toBe(password)
})

test('checking the longest password takes no noticeable time', async () => {
  // Processor time is measured, because a busy machine takes longer.
  await check('correct horse battery staple')
  const before = process.threadCpuUsage()
  await check('p4$sw0rd1@! and x7Kd92mVqLw0pZt '.repeat(32)).catch(() => undefined)
  expect(process.threadCpuUsage(before).user / 1_000).toBeLessThan(2_000)
})
