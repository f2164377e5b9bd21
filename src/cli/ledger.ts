import { requestIdsIn, reverseCalls } from '../administration/credits/reverse-calls.ts'
import { catchUp } from '../administration/projections/catch-up.ts'
import { creditsText, formatCredits } from '../billing/money.ts'
import type { Command, CommandContext, Given } from './command.ts'
import { readTextFile } from './files.ts'

const requestsBytesMax = 1_000_000
const notRecorded =
  'not recorded. An append on its way to the event log may still record it: give the file again when the log answers'

const reversed = async (
  { foundation, logger, progress }: Pick<CommandContext, 'foundation' | 'logger' | 'progress'>,
  given: Given,
  dryRun: boolean,
) => {
  const file = given.required('requests')
  const requestIds = requestIdsIn(await readTextFile('requests', file, requestsBytesMax))
  const open = await foundation()
  await catchUp(open, logger)
  const onProgress = (calls: number): void => progress(`${calls} of ${requestIds.length} calls`)
  const { calls, total } = await reverseCalls(open, { requestIds, dryRun, onProgress, ...open.operator })
  const count = calls.filter(({ kind }) => kind === 'reversed').length
  return {
    json: {
      reversed: count,
      credits: formatCredits(total),
      calls: calls.map((call) =>
        call.kind === 'reversed'
          ? {
              request_id: call.requestId,
              reversed: true,
              organization_id: call.organizationId,
              amount: call.amount,
            }
          : {
              request_id: call.requestId,
              reversed: false,
              why: call.kind === 'left' ? call.why : notRecorded,
            },
      ),
    },
    lines: calls.map((call) =>
      call.kind === 'reversed'
        ? `reversed ${call.requestId}  ${creditsText(call.amount)} of ${call.organizationId}`
        : `left     ${call.requestId}  ${call.kind === 'left' ? call.why : notRecorded}`,
    ),
    failed: calls.some(({ kind }) => kind === 'not_recorded'),
    count,
    total,
  }
}

const reverse: Command = {
  name: 'ledger reverse',
  summary:
    'give back the cost of calls whose outcome was unknown when a process stopped; its log names them. Exit code 1 if any is not recorded',
  parameters: [
    { name: 'requests', help: 'a file with a request id on each line', required: true, kind: 'file' },
  ],
  changes: {
    of: 'money',
    asks: 'on a terminal',
    left: 'Some of the calls may be reversed. Give the same file again: reversed calls stay reversed.',
    plan: async (context, given) => {
      const { count, total, json } = await reversed(context, given, true)
      return {
        says: [
          count === 0
            ? `Nothing: none of the ${json.calls.length} calls has a charge to give back.`
            : `Give back ${creditsText(formatCredits(total))} of ${count} of the ${json.calls.length} calls.`,
        ],
        json,
      }
    },
  },
  run: async (context, given) => {
    const { json, lines, failed } = await reversed(context, given, false)
    return { json, lines, failed }
  },
}

export const ledgerCommands: readonly Command[] = [reverse]
