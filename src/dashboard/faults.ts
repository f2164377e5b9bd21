import type { FastifyError } from 'fastify'
import { InputFault } from '../administration/input.ts'
import { InvitationEnded } from '../administration/users/invitations.ts'
import { isDatabaseAway } from '../call/unavailable.ts'
import { Unavailable } from '../event-log/port.ts'
import { CommandRefused, LedgerOutcomeUnknown, LedgerUnavailable } from '../ledger/command.ts'
import { ConnectionInsecure } from './cookies.ts'
import { capitalized } from './format.ts'
import { RoleForbids, TooManyForms } from './gate.ts'
import { PasswordNotChosen } from './given-password.ts'
import { FormSentBefore } from './once.ts'
import { PageMissing } from './page.ts'
import { SecondFactorNotSet } from './required-factor.ts'

type ShownFault = { readonly status: number; readonly title: string; readonly advice: string }

const forbiddenShown = (error: Error): ShownFault | null => {
  if (error instanceof PasswordNotChosen)
    return {
      status: 403,
      title: 'Choose a password first',
      advice:
        'Nothing was changed, because you are still using a generated password. Go to the overview, which first asks you to choose your own password.',
    }
  if (error instanceof SecondFactorNotSet)
    return {
      status: 403,
      title: 'Set up a second factor first',
      advice:
        'Nothing was changed, because your role requires a second factor. Go to the overview, which first asks you to set one up.',
    }
  if (error instanceof RoleForbids)
    return { status: 403, title: 'You do not have permission to do this', advice: error.message }
  if (error instanceof ConnectionInsecure)
    return {
      status: 403,
      title: 'HTTPS required',
      advice:
        'This connection is not encrypted, so others on the network could read passwords. Use https://. Operators: set TLS_CERT and TLS_KEY, or TRUSTED_PROXIES if a proxy terminates TLS; INSECURE_COOKIES=1 allows sign-in without encryption.',
    }
  return null
}

/** The status and the text of the page for an error. Pure. */
export const faultShown = (error: FastifyError): ShownFault => {
  if (error instanceof PageMissing)
    return {
      status: 404,
      title: 'Page not found',
      advice: 'There is no page at this address. Check the address for typing mistakes.',
    }
  if (error instanceof InvitationEnded)
    return {
      status: 404,
      title: 'This link is not valid',
      advice:
        'An invitation link works once, within 72 hours. This link may have been used, withdrawn, replaced or mistyped. Ask the person who sent it for a new one. If you already have a password, sign in.',
    }
  if (error.code === 'FST_CSRF_MISSING_SECRET' || error.code === 'FST_CSRF_INVALID_TOKEN')
    return {
      status: 403,
      title: 'The form was refused',
      advice:
        'The form is out of date, or did not come from this site. Nothing was changed. Allow cookies, open the page again and send the form from there.',
    }
  if (error instanceof FormSentBefore)
    return {
      status: 409,
      title: 'Already sent',
      advice:
        'This form was sent before, so nothing was changed this time. To see the result of the first time, open the page of what it changes. To make another change, open the form again.',
    }
  if (error instanceof CommandRefused)
    return { status: 422, title: 'Not done', advice: `${capitalized(error.message)}.` }
  if (error instanceof TooManyForms)
    return { status: 429, title: 'Too many requests', advice: `${error.message} Nothing was changed.` }
  const forbidden = forbiddenShown(error)
  if (forbidden !== null) return forbidden
  if (error instanceof LedgerOutcomeUnknown)
    return {
      status: 504,
      title: 'Outcome unknown',
      advice:
        'The event log did not confirm the change in time. The change may have been made, so check before you repeat it.',
    }
  if (error instanceof LedgerUnavailable || error instanceof Unavailable)
    return {
      status: 503,
      title: 'Not available at the moment',
      advice: 'The event log cannot be reached. Try again in a moment.',
    }
  if (error instanceof InputFault)
    return {
      status: 422,
      title: 'Invalid address',
      advice: `${capitalized(error.field)}: ${error.message}.`,
    }
  if (isDatabaseAway(error))
    return {
      status: 503,
      title: 'Database not available',
      advice: 'The database cannot be reached. Try again in a moment.',
    }
  const status = error.statusCode ?? 500
  return status >= 400 && status < 500
    ? {
        status,
        title: 'The request was refused',
        advice:
          'The request is not valid for this page. Nothing was changed. Go back, open the page again, and repeat your action.',
      }
    : {
        status: 500,
        title: 'Something went wrong',
        advice: 'The error has been logged. A change may have been made, so check before you try again.',
      }
}
