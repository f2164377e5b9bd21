import type { Logger } from 'pino'
import {
  type Capability,
  type CapabilityPorts,
  type OpenCapability,
  SettingFault,
} from '../call/capability.ts'
import type { AnyCapabilityForm } from '../call/form.ts'
import { type Config, ConfigError } from '../config.ts'
import { createDns } from '../egress/dns.ts'
import { createEgressGuard } from '../egress/guard.ts'
import { createOutside, type Outside } from '../egress/outside.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { openJobQueue } from '../jobs/queue.ts'
import { meterDns } from '../metrics/dns.ts'
import type { Metrics } from '../metrics/metrics.ts'

export type AnyCapability = Capability<Config>

/** The combined capabilities of this process. */
export type OpenCapabilities = Required<Pick<OpenCapability, 'jobs' | 'close' | 'reload'>> & {
  formsOn(host: AnyCapability['hosts'][number]): readonly AnyCapabilityForm[]
}

/** Opens the capabilities whose calls this process answers, or all capabilities if it runs jobs. Throws `ConfigError`. */
export const openCapabilities = async (
  capabilities: readonly AnyCapability[],
  {
    foundation,
    config,
    logger,
    metrics,
  }: { foundation: Foundation; config: Config; logger: Logger; metrics: Metrics },
): Promise<OpenCapabilities> => {
  const has = (role: Config['ROLES'][number]): boolean => config.ROLES.includes(role)
  const outside = openOutside(config)
  const queue = openJobQueue(foundation.url, logger)
  const open: { readonly hosts: AnyCapability['hosts']; readonly capability: OpenCapability }[] = []
  const close = async (): Promise<void> => {
    const closed = await Promise.allSettled([
      ...open.map(({ capability }) => capability.close?.()),
      queue.close(),
    ])
    const failed = closed.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
    if (failed.length > 0) throw new AggregateError(failed, 'some capabilities could not be closed')
  }
  const { meters } = metrics
  const ports: Omit<CapabilityPorts<Config>, 'answersCalls'> = {
    ...foundation,
    settings: config,
    queue,
    outside,
    meters,
    logger,
  }
  try {
    for (const capability of capabilities) {
      const { hosts } = capability
      const answersCalls = hosts.some(has)
      if (answersCalls || has('jobs'))
        open.push({ hosts, capability: await opened(capability, { ...ports, answersCalls }) })
    }
  } catch (error) {
    await close()
    throw error
  }
  if (open.length > 0) meterDns(meters, outside.dns.status)
  const all = open.map(({ capability }) => capability)
  return {
    formsOn: (asked) =>
      open.flatMap(({ hosts, capability }) => (hosts.includes(asked) ? capability.forms : [])),
    jobs: Object.assign({}, ...all.map(({ jobs }) => jobs)),
    reload: async () => {
      for (const { reload } of all) await reload?.()
    },
    close,
  }
}

const opened = async (capability: AnyCapability, ports: CapabilityPorts<Config>): Promise<OpenCapability> => {
  try {
    return await capability.open(ports)
  } catch (cause) {
    throw cause instanceof SettingFault ? new ConfigError(cause.message, { cause }) : cause
  }
}

/** Configures access to external servers. Throws `ConfigError` if a setting is invalid. */
export const openOutside = ({ DNS_SERVERS, EGRESS_ALLOW, SMTP_ALLOW }: Config): Outside =>
  createOutside({
    guard: createEgressGuard({ allow: [] }),
    operatorGuard: naming('EGRESS_ALLOW', () => createEgressGuard({ allow: EGRESS_ALLOW })),
    mailGuard: naming('SMTP_ALLOW', () => createEgressGuard({ allow: SMTP_ALLOW })),
    dns: naming('DNS_SERVERS', () => createDns({ servers: DNS_SERVERS ?? null, clock: performance })),
  })

const naming = <T>(variable: string, open: () => T): T => {
  try {
    return open()
  } catch (cause) {
    throw new ConfigError(`${variable}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause })
  }
}
