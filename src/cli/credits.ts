import { balanceAt } from '../administration/credits/balance-at.ts'
import { balance, grant, grantOnce, previewGrant } from '../administration/credits/credits.ts'
import { lotsLeft } from '../administration/credits/lots.ts'
import {
  amountOf,
  expiryOf,
  futureExpiryOf,
  instantOf,
  labelOf,
  wholeNumber,
} from '../administration/input.ts'
import { formatCredits } from '../billing/money.ts'
import { type Command, type Given, organizationParameter, wholeOrNot } from './command.ts'
import { creditCorrections } from './credit-corrections.ts'
import { referenceParameter } from './credit-parameters.ts'

const grantOf = (given: Given) => {
  const expiry = given.text('expires-at')
  const label = given.text('reference')
  const reference = label === undefined ? undefined : labelOf('reference', label)
  const asked = {
    organizationId: given.required('org'),
    amount: amountOf('amount', given.required('amount'), { zero: false }),
    priority: wholeNumber('priority', given.text('priority') ?? '100', { min: 0, max: 1000 }),
    // A lot under a reference may have been granted before it expired.
    expiresAt:
      expiry === undefined
        ? null
        : reference === undefined
          ? futureExpiryOf('expires-at', expiry, Date.now())
          : expiryOf('expires-at', expiry),
    reason: labelOf('reason', given.text('reason') ?? 'granted by operator'),
  }
  return { asked, reference }
}

const granting: Command = {
  name: 'credits grant',
  summary: 'grant a lot of credits',
  parameters: [
    organizationParameter,
    { name: 'amount', help: 'credits, at most 6 decimals', required: true },
    {
      name: 'expires-at',
      help: 'ISO 8601 instant from which the rest is worth nothing; a date alone: the last millisecond of that day, UTC (default never)',
    },
    { name: 'priority', help: '0 to 1000, lower is drawn first (default 100)' },
    { name: 'reason', help: 'kept in the event log (default "granted by operator")' },
    referenceParameter,
  ],
  changes: {
    of: 'money',
    asks: 'on a terminal',
    left: wholeOrNot('credits lots'),
    plan: async ({ foundation }, given) => {
      const { asked, reference } = grantOf(given)
      const open = await foundation()
      const wanted = { ...asked, ...open.operator }
      const preview = await previewGrant(open, reference === undefined ? wanted : { ...wanted, reference })
      const [amount, balance] = [formatCredits(asked.amount), formatCredits(preview.balanceAfter)]
      const until = asked.expiresAt === null ? 'that never expires' : `that expires at ${asked.expiresAt}`
      return {
        says: preview.already
          ? [`Nothing: ${amount} credits are granted under the reference "${reference}" already.`]
          : [
              `Grant ${asked.organizationId} a lot of ${amount} credits ${until}: its balance becomes ${balance}.`,
            ],
        ...(preview.already ? { asks: 'never' } : {}),
        json: {
          already_granted: preview.already,
          organization_id: asked.organizationId,
          grant_id: null,
          amount,
          expires_at: asked.expiresAt,
          priority: asked.priority,
          reason: asked.reason,
          reference: reference ?? null,
          balance,
        },
      }
    },
  },
  run: async ({ foundation }, given) => {
    const { asked, reference } = grantOf(given)
    const open = await foundation()
    const wanted = { ...asked, ...open.operator }
    const { granted, balance, revision, already } =
      reference === undefined
        ? { ...(await grant(open, wanted)), already: false }
        : await grantOnce(open, { ...wanted, reference })
    const { grant_id, amount, expires_at, priority, reason } = granted
    return {
      json: {
        organization_id: asked.organizationId,
        grant_id,
        amount,
        expires_at,
        priority,
        reason,
        reference: granted.reference,
        already_granted: already,
        balance: formatCredits(balance),
        revision,
      },
    }
  },
}

const showing: Command = {
  name: 'credits balance',
  summary: 'the balance, from the ledger itself: now, or as of an instant',
  parameters: [
    organizationParameter,
    { name: 'at', help: 'ISO 8601 instant: what had happened by then (default now)' },
    { name: 'known-at', help: 'ISO 8601 instant: of what was recorded by then (default now)' },
  ],
  changes: 'nothing',
  run: async ({ foundation, progress }, given) => {
    const organizationId = given.required('org')
    const [at, knownAt] = [given.text('at'), given.text('known-at')]
    if (at !== undefined || knownAt !== undefined) {
      const now = new Date().toISOString()
      const wanted = {
        at: at === undefined ? now : instantOf('at', at),
        knownAt: knownAt === undefined ? now : instantOf('known-at', knownAt),
      }
      const found = await balanceAt(await foundation({ anyHistory: true }), {
        organizationId,
        asOf: { atMs: Date.parse(wanted.at), knownAtMs: Date.parse(wanted.knownAt) },
        onProgress: (events) => progress(`${events} events`),
      })
      return {
        json: {
          organization_id: organizationId,
          at: wanted.at,
          known_at: wanted.knownAt,
          balance: formatCredits(found.balance),
          overdrawn: formatCredits(found.overdrawn),
          revision: found.revision,
        },
      }
    }
    const found = await balance(await foundation(), organizationId)
    return {
      json: {
        organization_id: organizationId,
        name: found.name,
        balance: formatCredits(found.balance),
        available: formatCredits(found.available),
        revision: found.revision,
      },
    }
  },
}

const lots: Command = {
  name: 'credits lots',
  summary: 'what is left of each lot, in the order in which charges draw them',
  parameters: [organizationParameter],
  changes: 'nothing',
  run: async ({ foundation }, given) => {
    const found = await lotsLeft(await foundation(), given.required('org'))
    return {
      json: found.lots.map(
        ({ grant_id, left, granted, priority, expires_at, reason, reference, revision }) => ({
          grant_id,
          left,
          granted,
          priority,
          expires_at,
          reason,
          reference,
          revision,
        }),
      ),
    }
  },
}

export const creditsCommands: readonly Command[] = [granting, showing, lots, ...creditCorrections]
