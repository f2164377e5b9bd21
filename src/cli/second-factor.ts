import { InputFault, labelOf } from '../administration/input.ts'
import { removeSecondFactor } from '../administration/users/second-factors.ts'
import { type Command, type Given, wholeOrNot } from './command.ts'
import { nameMax, nameParameter } from './user-changes.ts'

const nameOf = (given: Given): string => labelOf('name', given.required('name'), nameMax)

/** People set up their own in the dashboard; an operator removes it here when a device is lost. */
export const secondFactor: Command = {
  name: 'user second-factor',
  summary:
    "remove a user's second factor, for who lost the device: the password alone opens the dashboard then",
  parameters: [
    nameParameter,
    { name: 'remove', help: 'what is to be done; there is nothing else', kind: 'flag' },
    { name: 'reason', help: 'kept in the event log', required: true },
  ],
  changes: {
    of: 'access',
    asks: 'always',
    left: wholeOrNot('user list'),
    plan: async (_, given) => ({
      says: [
        `Remove the second factor of ${nameOf(given)}: the password alone opens the dashboard then, and the recovery codes open nothing.`,
        'Be sure who asks for it: whoever knows the password needs no more than this.',
      ],
    }),
  },
  run: async ({ foundation }, given) => {
    const [user, reason] = [nameOf(given), labelOf('reason', given.required('reason'))]
    if (!given.flag('remove'))
      throw new InputFault('remove', 'say --remove; a second factor is set up in the dashboard')
    const open = await foundation()
    await removeSecondFactor(open, { user, reason, actor: open.operator.actor })
    return { json: { user, second_factor: false, reason }, lines: [`${user} has no second factor now`] }
  },
}
