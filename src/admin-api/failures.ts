import type { FastifyError } from 'fastify'
import { InputFault } from '../administration/input.ts'
import { isDatabaseAway } from '../call/unavailable.ts'
import { Unavailable, UnknownOutcome } from '../event-log/port.ts'
import { EventDataError } from '../event-log/stored-event.ts'
import { CommandRefused, LedgerOutcomeUnknown, LedgerUnavailable } from '../ledger/command.ts'

/** A refused request of the admin API, with the error object of Spec §2.1 and the codes of the command line's `--json`. */
export class Refused extends Error {
  override name = 'Refused'
  readonly status: number
  readonly error: string
  readonly code: string
  readonly field: string | null
  readonly retryAfterSeconds: number | null
  constructor(
    kind: keyof typeof kinds,
    message: string,
    {
      field = null,
      retryAfterSeconds = null,
    }: { field?: string | null; retryAfterSeconds?: number | null } = {},
  ) {
    super(message)
    const [status, error, code] = kinds[kind]
    this.status = status
    this.error = error
    this.code = code
    this.field = field
    this.retryAfterSeconds = retryAfterSeconds
  }
}

/** Status, category (as in the specification) and code. */
export const kinds = {
  unauthorized: [401, 'unauthorized', 'token'],
  forbidden: [403, 'forbidden', 'role'],
  missing: [404, 'not_found', 'route'],
  method: [405, 'bad_request', 'method'],
  body: [400, 'bad_request', 'body'],
  input: [400, 'validation_error', 'input'],
  refused: [422, 'validation_error', 'refused'],
  conflict: [409, 'conflict', 'idempotency_key'],
  limited: [429, 'rate_limited', 'limited'],
  unavailable: [503, 'service_unavailable', 'unavailable'],
  unknown: [504, 'outcome_unknown', 'unknown'],
  failed: [500, 'internal_error', 'failed'],
} as const

/** Turns any error into a `Refused`. The message of an unexpected error is not revealed. */
export const refusedBy = (error: FastifyError): Refused => {
  if (error instanceof Refused) return error
  if (error instanceof InputFault)
    return new Refused('input', `${error.field}: ${error.message}`, { field: error.field })
  if (error instanceof CommandRefused || error instanceof EventDataError)
    return new Refused('refused', error.message)
  if (error instanceof LedgerOutcomeUnknown || error instanceof UnknownOutcome)
    return new Refused(
      'unknown',
      `${error.message}. The change may have been made: check before you repeat the request`,
    )
  if (error instanceof LedgerUnavailable || error instanceof Unavailable || isDatabaseAway(error))
    return new Refused('unavailable', 'the event log or the database cannot be reached', {
      retryAfterSeconds: 1,
    })
  if ((error.statusCode ?? 500) < 500)
    return new Refused('body', 'a JSON object of at most 64 KiB is expected, as application/json')
  return new Refused(
    'failed',
    'something went wrong on our side; the log contains the error with the request id',
  )
}
