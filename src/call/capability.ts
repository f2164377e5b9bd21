import type pg from 'pg'
import type { Logger } from 'pino'
import type { Outside } from '../egress/outside.ts'
import type { EventLog } from '../event-log/port.ts'
import type { Checkpoints } from '../event-log/tree/checkpoints.ts'
import type { CallFacts } from '../events/calls.ts'
import type { ErasureFile } from '../guard/secrets/erasures.ts'
import type { EpochSealer, Secrets } from '../guard/secrets/secrets.ts'
import { CommandRefused } from '../ledger/command.ts'
import type { Ledger } from '../ledger/write/commit.ts'
import type { DataSource } from './data-source.ts'
import type { AnyCapabilityForm, CapabilityDocument } from './form.ts'

/**
 * A capability, as the rest of the service sees it: one value, exported by `capabilities/<name>/index.ts`. The composition,
 * the jobs, the metrics and the command line know this type and no capability. `Settings` is the part of the configuration
 * that the capability reads.
 */
export type Capability<Settings = unknown> = {
  /** The hosts that answer its calls. The API's is always one of them: clients know one address. */
  readonly hosts: readonly ['api', ...'dashboard'[]]
  readonly document: CapabilityDocument
  /** Rejects with `SettingFault` where a setting makes no sense. */
  readonly open: (ports: CapabilityPorts<Settings>) => OpenCapability | Promise<OpenCapability>
  /**
   * Whether a text was the input of a call, by the keyed hashes in its facts: the event log holds nothing else of it. Null where
   * the facts are another capability's. The text is hashed once for any number of calls.
   */
  readonly recognizes?: (
    storage: CapabilityStorage & { readonly settings: Settings },
    text: string,
  ) => (facts: CallFacts) => InputVerdict | null | Promise<InputVerdict | null>
  /** Its checks for "doctor", which work without the database. */
  readonly checks?: (settings: Settings) => readonly CapabilityCheck[]
  /** The data its answers are based on, besides the input of partners. Read for a page: cheap, or cached. */
  readonly data?: (
    storage: CapabilityStorage & { readonly settings: Settings },
  ) => Promise<readonly DataSource[]>
  /** All stores of values that are sealed for more than a day. A value in no store ends with its epoch's key. */
  readonly sealed?: (storage: CapabilityStorage) => readonly SealedStore[]
}

/** A check of something that a capability needs, in the form of the operators' checks. */
export type CapabilityCheck = {
  /** In a word or two. */
  readonly name: string
  /** Its name, for when `look` finds something wrong. */
  readonly severity: 'warning' | 'fault'
  readonly bound?: { readonly unit: 'days'; readonly warning: number }
  /** The remedy. */
  readonly advice: string
  readonly look: () => Promise<{
    /** A sentence with the value. */
    readonly says: string
    /** For a value, the bound decides. */
    readonly state: 'wrong' | { readonly value: number }
  }>
}

export type InputVerdict = { readonly verdict: 'yes' | 'no' | 'cannot_be_told'; readonly why?: string }

/** Where a capability stores its data. */
export type CapabilityStorage = {
  readonly pool: pg.Pool
  readonly eventLog: EventLog
  readonly secrets: Secrets
  readonly epochKeys: { sealer(purpose: string): EpochSealer }
  /** The people who were erased. Not in backups: a capability that stores people applies it before it serves anyone. */
  readonly erasures: ErasureFile
}

/** The dependencies of a capability. */
export type CapabilityPorts<Settings> = CapabilityStorage & {
  readonly settings: Settings
  /** False where the process only does jobs: then nothing has to be loaded or followed for calls. */
  readonly answersCalls: boolean
  /** Of the database, for a pool of its own. Holds a password: never logged. */
  readonly url: string
  /** The installation is for evaluation: invented data are allowed. */
  readonly embedded: boolean
  readonly queue: CapabilityQueue
  /** The account of an organization as its ledger has it now. */
  readonly ledger: Pick<Ledger, 'account'>
  readonly checkpoints: Pick<Checkpoints, 'last' | 'proofOfInclusion'>
  readonly outside: Outside
  readonly meters: Meters
  readonly logger: Logger
}

export type OpenCapability = {
  readonly forms: readonly AnyCapabilityForm[]
  /** Work done later, by name. A name is one job for the whole installation. */
  readonly jobs?: Readonly<Record<string, ScheduledJob | QueuedJob>>
  /** Reads its files again. If the new files are bad, it keeps the old data and logs that. Never rejects. */
  readonly reload?: () => Promise<void>
  /** After the hosts and the jobs have ended. */
  readonly close?: () => Promise<void>
}

/** A setting makes no sense. `message` names the variable, never a secret's value. */
export class SettingFault extends CommandRefused {
  override name = 'SettingFault'
}

/**
 * Scheduled: `cron` is UTC, in minutes. After `expireSeconds` it counts as failed, and may be run again while the first run
 * continues: two runs, even at the same time, have the same effect as one.
 */
export type ScheduledJob = { readonly cron: string; readonly expireSeconds: number } & (
  | { readonly run: () => Promise<unknown>; readonly portionMax?: undefined }
  /** Returns how much it did, at most `portionMax`, and runs again until it does less. */
  | { readonly run: () => Promise<number>; readonly portionMax: number }
)

/** Enough for work on the rows of some hours, in seconds: such jobs take seconds, and longer after the service was down. */
export const usualJobSecondsMax = 900

/** Run on request by `queue.send`; several at a time. */
export type QueuedJob = {
  readonly run: (data: string) => Promise<unknown>
  readonly concurrencyMax: number
  /** After this time a job counts as failed. */
  readonly expireSeconds: number
}

export type CapabilityQueue = {
  /**
   * Requests a job. While a job with the same key waits, another request adds nothing. `data` is stored in the database as it
   * is: seal secrets first. Waiting jobs with the highest priority run first; the default is 0.
   */
  send(
    name: string,
    data: string,
    options: { afterSeconds: number; key: string; priority?: number },
  ): Promise<void>
}

export type SealedStore = {
  readonly name: string
  /** Seals again, under a newer key, everything that is still needed and can be opened. Returns how many; 0: nothing is left. */
  reseal(keyId: string): Promise<number>
  /** Deletes what was sealed under a deleted key. Returns how many. */
  drop(keyId: string): Promise<number>
}

/**
 * What a capability measures. Names come without the prefix `enrichment_`. Labels hold words of ours only: never a key, an
 * organization, an address, a domain, or anything else that came with a request. Reported on every call, so it must be cheap.
 */
export type Meters = {
  /** Counts by the words of one label. All words are known from the start, so that the first count shows as an increase. */
  words<Word extends string>(meter: Meter, label: string, words: readonly Word[]): (word: Word) => void
  counter(meter: Meter): () => void
  histogram(
    meter: LabelledMeter & { readonly buckets: readonly number[] },
  ): (value: number, labels?: Record<string, string>) => void
  /** A counter that is counted elsewhere, and read with the metrics. */
  total(meter: LabelledMeter, read: () => readonly Sample[]): void
  gauge(meter: LabelledMeter, read: () => readonly Sample[] | Promise<readonly Sample[]>): void
}

type Meter = { readonly name: string; readonly help: string }
type LabelledMeter = Meter & { readonly labels?: readonly string[] }
/** Without a sample a metric is left out. */
export type Sample = { readonly labels?: Record<string, string>; readonly value: number }
