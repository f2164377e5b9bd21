import { z } from 'zod'
import type { CallDocument } from '../../src/call/form.ts'

/** Documents a call that exists only in a test. */
export const someDocument: CallDocument = {
  operationId: 'someCall',
  summary: 'A call of a test',
  description: 'No one reads it.',
  request: null,
  result: z.looseObject({}),
  codes: [],
}
