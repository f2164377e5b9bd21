/**
 * Exhaustive tests try many seeds, every command with every role, every page, and rare faults. `.ci/run` sets EXHAUSTIVE=1 to run
 * all of them. `npm test` runs a part and no file `*.long.test.ts`, and prints this at the start.
 */
export const exhaustive = process.env.EXHAUSTIVE === '1'

/** All cases in an exhaustive run, otherwise every `step`th. */
export const everyNth = <T>(step: number, cases: readonly T[]): readonly T[] =>
  exhaustive ? cases : cases.filter((_, index) => index % step === 0)

/** The number of random cases: `count` in an exhaustive run, otherwise a fifth of it. */
export const randomCases = (count: number): number => (exhaustive ? count : Math.ceil(count / 5))

/** Vitest calls this once, at the start. */
export default function announce(): void {
  if (!exhaustive)
    process.stdout.write(
      '\n Skipped tests, files *.long.test.ts and most random cases run in .ci/run. To run them here: EXHAUSTIVE=1 npm test\n',
    )
}
