import { labelOf } from '../administration/input.ts'
import { freshPassword, putUser } from '../administration/users.ts'
import type { Command } from './command.ts'

const nameMax = 64

export const userCommands: readonly Command[] = [
  {
    name: 'user create',
    summary: 'create a dashboard user, or give an existing one a new password; it is shown once, here',
    parameters: [{ name: 'name', help: 'such as ada', required: true }],
    run: async ({ foundation }, given) => {
      const name = labelOf('name', given.required('name'), nameMax)
      const password = freshPassword()
      await putUser((await foundation()).pool, { name, password })
      return { json: { user: name, password } }
    },
  },
]
