import { z } from 'zod'
import { type Declared, isPersonal } from '../administration/declare.ts'
import { shownOf, typedHelp } from '../administration/fields.ts'
import { rolesThatMay } from '../administration/roles.ts'
import { kinds } from './failures.ts'

type Json = Readonly<Record<string, unknown>>

export const adminPathOf = ({ name }: Pick<Declared, 'name'>): string => `/admin/v1/${name.replace(' ', '/')}`

/** Queries also use POST if they run as jobs, or if they are about a person, whose data must not be in URLs. */
export const adminMethodOf = (declared: Pick<Declared, 'changes' | 'long' | 'fields'>): 'GET' | 'POST' =>
  declared.changes === 'nothing' && declared.long === undefined && !isPersonal(declared) ? 'GET' : 'POST'

/** The path for the progress and the answer of a job. */
export const jobPath = '/admin/v1/jobs'

export const adminOpenApiOf = (declarations: readonly Declared[], version: string): Json => ({
  openapi: '3.1.0',
  info: {
    title: 'Enrichment ledger: administration',
    version,
    summary: 'The commands and queries of operators.',
    description:
      "Every request needs an operator token (created with `user token`) and has the rights of the token's user. Amounts of credits are decimal strings.",
    license: { name: 'Proprietary', identifier: 'LicenseRef-Proprietary' },
  },
  servers: [{ url: '/', description: 'The host of the dashboard' }],
  security: [{ operatorToken: [] }],
  tags: [...new Set(declarations.map(nounOf))].map((name) => ({
    name,
    description: `Commands and queries about ${name}`,
  })),
  paths: {
    ...Object.fromEntries(declarations.map((one) => [adminPathOf(one), pathOf(one)])),
    [`${jobPath}/{id}`]: jobOperation,
  },
  components: {
    securitySchemes: { operatorToken: { type: 'http', scheme: 'bearer' } },
    schemas: { Error: errorSchema, Job: jobSchema },
    responses: {
      Error: {
        description: 'The request was refused or failed; `message` contains the reason.',
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
      },
    },
  },
})

const nounOf = ({ name }: Declared): string => name.split(' ')[0] ?? name

const errorSchema = {
  type: 'object',
  required: ['error', 'message', 'code', 'request_id', 'details'],
  properties: {
    error: { type: 'string', enum: [...new Set(Object.values(kinds).map(([, error]) => error))] },
    message: { type: 'string' },
    code: { type: 'string', enum: Object.values(kinds).map(([, , code]) => code) },
    request_id: { type: 'string' },
    details: { type: 'object', properties: { field: { type: 'string' } } },
  },
}

const refusals = {
  '4XX': { $ref: '#/components/responses/Error' },
  '5XX': { $ref: '#/components/responses/Error' },
}

const answered = (schema: Json, description: string): Json => ({
  '200': { description, content: { 'application/json': { schema } } },
  ...refusals,
})

const accepted: Json = {
  description: `The work was started as a job. Request ${jobPath}/{id}, the address in the Location header, repeatedly until the job has ended.`,
  headers: { Location: { schema: { type: 'string' } } },
  content: { 'application/json': { schema: { $ref: '#/components/schemas/Job' } } },
}

const jobSchema: Json = {
  type: 'object',
  required: ['job_id', 'name', 'state'],
  properties: {
    job_id: { type: 'string', format: 'uuid' },
    name: { type: 'string' },
    state: { type: 'string', enum: ['waiting', 'running', 'done', 'refused', 'failed'] },
    progress: { type: ['string', 'null'] },
    figures: { type: ['object', 'null'], description: 'The progress, in machine-readable form.' },
    requested_by: { type: 'string' },
    requested_at: { type: 'string', format: 'date-time' },
    started_at: { type: ['string', 'null'], format: 'date-time' },
    ended_at: { type: ['string', 'null'], format: 'date-time' },
    answer: {
      type: ['object', 'array', 'null'],
      description: 'For a finished job: the output of the command when run with --json.',
    },
    error: { type: ['string', 'null'], description: 'The reason why the job was refused or failed.' },
  },
}

const jobOperation: Json = {
  get: {
    operationId: 'job',
    summary: 'The progress of a job and, once it is done, its answer',
    description: 'Requires a role that can start the job.',
    tags: ['jobs'],
    parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string', format: 'uuid' } }],
    responses: answered({ $ref: '#/components/schemas/Job' }, 'The job.'),
  },
}

const pathOf = (declared: Declared): Json => {
  const { changes, long, name, summary, action } = declared
  const about = {
    operationId: name.replaceAll(/[ -](\w)/g, (_, letter: string) => letter.toUpperCase()),
    summary: `${summary.charAt(0).toUpperCase()}${summary.slice(1)}`,
    description: `Requires the role ${rolesThatMay(action)}.`,
    tags: [nounOf(declared)],
  }
  const schema = schemaOf(declared)
  if (adminMethodOf(declared) === 'GET')
    return { get: { ...about, parameters: queryParameters(declared, schema), responses: readable(declared) } }
  return {
    post: {
      ...about,
      parameters: [
        changes !== 'nothing' && {
          name: 'plan',
          in: 'query',
          required: false,
          schema: { type: 'boolean' },
          description: 'true: returns the plan and changes nothing.',
        },
        {
          name: 'Idempotency-Key',
          in: 'header',
          required: false,
          schema: { type: 'string' },
          description:
            'Within a day, another request with the same key runs nothing and returns the same answer without its secrets.',
        },
      ].filter((one) => one !== false),
      requestBody: { required: true, content: { 'application/json': { schema } } },
      responses:
        long === undefined
          ? answered({ type: 'object' }, 'The answer, or the plan.')
          : { ...answered({ type: 'object' }, 'The plan.'), '202': accepted },
    },
  }
}

const queryParameters = ({ columns }: Declared, schema: Json): Json[] => {
  const properties = schema.properties as Readonly<Record<string, Json>>
  const required = (schema.required ?? []) as readonly string[]
  return [
    ...Object.entries(properties).map(([name, { description, ...type }]) => ({
      name,
      in: 'query',
      required: required.includes(name),
      schema: type,
      ...(description !== undefined && { description }),
    })),
    ...(columns === undefined
      ? []
      : [
          {
            name: 'limit',
            in: 'query',
            required: false,
            schema: { type: 'integer', minimum: 1, maximum: 1000 },
          },
          { name: 'cursor', in: 'query', required: false, schema: { type: 'string' } },
        ]),
  ]
}

const readable = (declared: Declared): Json => {
  const { types = [] } = declared
  const answer = listed(declared)
  if (types.length === 0) return answer
  const content = Object.fromEntries(types.map((type) => [type, { schema: { type: 'string' } }]))
  const json = { 'application/json': { schema: { type: 'object' } } }
  return {
    ...answer,
    '200': {
      description: 'The file, or the answer if the values do not request a file.',
      content: { ...content, ...json },
    },
  }
}

const listed = ({ columns }: Declared): Json =>
  columns === undefined
    ? answered({ type: 'object' }, 'The answer.')
    : answered(
        {
          type: 'object',
          required: ['items', 'next_cursor'],
          properties: {
            items: { type: 'array', items: { type: 'object' } },
            next_cursor: { type: ['string', 'null'] },
            incomplete: { type: 'string', description: 'The reason why the list is incomplete.' },
          },
        },
        'One page of the list.',
      )

const schemaOf = ({ input, fields }: Declared): Json => {
  const { $schema: _, ...schema } = z.toJSONSchema(input, {
    io: 'input',
    unrepresentable: 'any',
    override: ({ zodSchema, jsonSchema }) => {
      const words = shownOf(zodSchema)
      if (words !== undefined) jsonSchema.description = typedHelp(words)
      if (words?.control === 'choice') jsonSchema.enum = [...(words.options ?? [])]
    },
  })
  // A request cannot name a file on the server.
  for (const { name, control } of fields) if (control === 'file') delete schema.properties?.[name]
  return schema
}
