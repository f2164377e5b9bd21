import type pg from 'pg'
import type { Logger } from 'pino'
import type { Outside } from '../egress/outside.ts'
import type { EventLog } from '../event-log/port.ts'
import type { Checkpoints } from '../event-log/tree/checkpoints.ts'
import type { CallFacts } from '../events/calls.ts'
import type { ErasureFile } from '../guard/secrets/erasures.ts'
import type { EpochSealer, Secrets } from '../guard/secrets/secrets.ts'
import { CommandRefused } from '../ledger/command.ts'
import type { Ledger } from '../ledger/write/ledger.ts'
import type { DataSource } from './data-source.ts'
import type { AnyCapabilityForm, CapabilityDocument } from './form.ts'

/**
 * The parts of a capability that the rest of the service uses. Each `capabilities/<name>/index.ts` exports one such value, so that
 * composition, jobs, metrics and the command line do not depend on particular capabilities. `Settings` is the capability's part of
 * the configuration.
 */
export type Capability<Settings = unknown> = {
  /** The hosts that answer its calls. The API host is always one of them, so clients need only one address. */
  readonly hosts: readonly ['api', ...'dashboard'[]]
  readonly document: CapabilityDocument
  /** Rejects with `SettingFault` if a setting is not valid. */
  readonly open: (ports: CapabilityPorts<Settings>) => OpenCapability | Promise<OpenCapability>
  /**
   * Returns a function that checks whether the text was the input of a call. The event log contains only keyed hashes of inputs, so
   * the text is hashed, once for many calls. The function returns null for the facts of another capability.
   */
  readonly recognizes?: (
    storage: CapabilityStorage & { readonly settings: Settings },
    text: string,
  ) => (facts: CallFacts) => InputVerdict | null | Promise<InputVerdict | null>
  /** Checks for "doctor" that need no database. */
  readonly checks?: (settings: Settings) => readonly CapabilityCheck[]
  /**
   * The lists, files and tables that the capability's answers are based on. Pages call this often, so the function must be cheap or cached.
   */
  readonly data?: (
    storage: CapabilityStorage & { readonly settings: Settings },
  ) => Promise<readonly DataSource[]>
  /**
   * All stores of values that stay sealed for more than a day. All other sealed values become unreadable when their epoch's key is deleted.
   */
  readonly sealed?: (storage: CapabilityStorage) => readonly SealedStore[]
}

export type CapabilityCheck = {
  /** One or two words. */
  readonly name: string
  readonly severity: 'warning' | 'fault'
  readonly bound?: { readonly unit: 'days'; readonly warning: number }
  readonly advice: string
  readonly look: () => Promise<{
    /** A sentence that contains the value. */
    readonly says: string
    /** A value is compared with `bound`. */
    readonly state: 'wrong' | { readonly value: number }
  }>
}

export type InputVerdict = { readonly verdict: 'yes' | 'no' | 'cannot_be_told'; readonly why?: string }

export type CapabilityStorage = {
  readonly pool: pg.Pool
  readonly eventLog: EventLog
  readonly secrets: Secrets
  readonly epochKeys: { sealer(purpose: string): EpochSealer }
  /** The people who were erased. A restored backup contains them again, so a capability must apply this file before it answers calls. */
  readonly erasures: ErasureFile
}

export type CapabilityPorts<Settings> = CapabilityStorage & {
  readonly settings: Settings
  /** False in a process that only runs jobs. Such a process does not need the data for calls. */
  readonly answersCalls: boolean
  /** The URL of the database, for a separate pool. It contains a password: never log it. */
  readonly url: string
  /** True for an evaluation installation, where invented data are allowed. */
  readonly embedded: boolean
  readonly queue: CapabilityQueue
  readonly ledger: Pick<Ledger, 'account'>
  readonly checkpoints: Pick<Checkpoints, 'last' | 'proofOfInclusion'>
  readonly outside: Outside
  readonly meters: Meters
  readonly logger: Logger
}

export type OpenCapability = {
  readonly forms: readonly AnyCapabilityForm[]
  /** Jobs by name. A name identifies one job in the whole installation. */
  readonly jobs?: Readonly<Record<string, ScheduledJob | QueuedJob>>
  /** Reads the capability's files again. Never rejects: an invalid file is logged, and the old data stay in use. */
  readonly reload?: () => Promise<void>
  /** Called after the hosts and the jobs have ended. */
  readonly close?: () => Promise<void>
}

/** Thrown if a setting is not valid. `message` names the variable and never contains a secret. */
export class SettingFault extends CommandRefused {
  override name = 'SettingFault'
}

/**
 * `cron` is in UTC. After `expireSeconds`, a run counts as failed, and the job can start again while the first run continues. Two
 * runs must therefore have the same effect as one.
 */
export type ScheduledJob = {
  /** What the job does, for the list of jobs. */
  readonly purpose: string
  readonly cron: string
  /** 15 minutes by default. */
  readonly expireSeconds?: number
} & (
  | { readonly run: () => Promise<unknown>; readonly portionMax?: undefined }
  /** Returns the amount of completed work. If the amount equals `portionMax`, the job runs again. */
  | { readonly run: () => Promise<number>; readonly portionMax: number }
)

/** Started by `queue.send`. */
export type QueuedJob = {
  readonly run: (data: string) => Promise<unknown>
  readonly concurrencyMax: number
  readonly expireSeconds: number
}

export type CapabilityQueue = {
  /**
   * Requests a job; does nothing while a job with the same key waits. `data` is stored unencrypted in the database, so seal secrets
   * first. Waiting jobs with the highest priority run first; the default is 0.
   */
  send(
    name: string,
    data: string,
    options: { afterSeconds: number; key: string; priority?: number },
  ): Promise<void>
}

export type SealedStore = {
  readonly name: string
  /** Reseals the values under this key that are readable and still needed, with a newer key. Returns their number; 0 if none is left. */
  reseal(keyId: string): Promise<number>
  /** Deletes the values that were sealed under a deleted key, and returns their number. */
  drop(keyId: string): Promise<number>
}

/**
 * The metrics of a capability. The prefix `enrichment_` is added to each name. Labels contain only words from the code and never data from a
 * request, such as a key, an organization, an address or a domain. Every call updates metrics, so updates must be cheap.
 */
export type Meters = {
  /** Counts by the words of one label. All words are exported with 0 from the start, so that the first count appears as an increase. */
  words<Word extends string>(meter: Meter, label: string, words: readonly Word[]): (word: Word) => void
  counter(meter: Meter): () => void
  histogram(
    meter: LabelledMeter & { readonly buckets: readonly number[] },
  ): (value: number, labels?: Record<string, string>) => void
  /** A counter that is kept elsewhere and read when metrics are collected. */
  total(meter: LabelledMeter, read: () => readonly Sample[]): void
  gauge(meter: LabelledMeter, read: () => readonly Sample[] | Promise<readonly Sample[]>): void
}

type Meter = { readonly name: string; readonly help: string }
type LabelledMeter = Meter & { readonly labels?: readonly string[] }
/** A metric without samples is left out. */
export type Sample = { readonly labels?: Record<string, string>; readonly value: number }
