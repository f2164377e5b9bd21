export interface paths {
  '/v1/ip/lookup': {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    get?: never
    put?: never
    /**
     * Look up an IP address
     * @description Returns the location of an address. If the address is private, reserved or unknown, the answer has `success: false` and is free.
     *
     *     The key needs the permission `ip_lookup`.
     */
    post: operations['lookUpIp']
    delete?: never
    options?: never
    head?: never
    patch?: never
    trace?: never
  }
  '/v1/email/validate': {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    get?: never
    put?: never
    /**
     * Validate an e-mail address
     * @description Reports whether mail can be delivered to an address, and what kind of address it is. Only `status: "valid"` is charged; company data is charged in addition if it was requested and found.
     *
     *     The key needs the permission `email_validation`.
     */
    post: operations['validateEmail']
    delete?: never
    options?: never
    head?: never
    patch?: never
    trace?: never
  }
  '/v1/profnet/profile': {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    get?: never
    put?: never
    /**
     * Retrieve a profile
     * @description Returns one person of the professional network. `deleted: true` means that the person was known but has been deleted; such an answer is free.
     *
     *     The key needs the permission `profnet_scraping`.
     */
    post: operations['retrieveProfile']
    delete?: never
    options?: never
    head?: never
    patch?: never
    trace?: never
  }
  '/pixel/limit': {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    /**
     * List the limits
     * @description Returns all limits with their usage. Free.
     *
     *     The key needs the permission `pixel_control`.
     */
    get: operations['listPixelLimits']
    put?: never
    /**
     * Limit the hits of a domain
     * @description Limits how many hits on a domain and its subdomains fire in a day or a month. Replaces an existing limit. Free.
     *
     *     The key needs the permission `pixel_control`.
     */
    post: operations['setPixelLimit']
    /**
     * Remove a limit
     * @description Removes a limit; it is not an error if there is none. The parameters can also be in the query. Free.
     *
     *     The key needs the permission `pixel_control`.
     */
    delete: operations['removePixelLimit']
    options?: never
    head?: never
    patch?: never
    trace?: never
  }
  '/pixel/block': {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    /**
     * List the blocks
     * @description Returns all blocks. Free.
     *
     *     The key needs the permission `pixel_control`.
     */
    get: operations['listPixelBlocks']
    put?: never
    /**
     * Block a domain
     * @description Blocks a domain: no pixel fires on it or its subdomains. Free.
     *
     *     The key needs the permission `pixel_control`.
     */
    post: operations['blockPixel']
    /**
     * Remove a block
     * @description Removes the block of this domain; a block on a parent domain stays. Free.
     *
     *     The key needs the permission `pixel_control`.
     */
    delete: operations['unblockPixel']
    options?: never
    head?: never
    patch?: never
    trace?: never
  }
  '/pixel/decide': {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    get?: never
    put?: never
    /**
     * Decide whether a pixel may fire
     * @description Counts a hit and returns whether the pixel may fire. If this cannot be determined, the answer is no. Free.
     *
     *     The key needs the permission `pixel_control`.
     */
    post: operations['decidePixel']
    delete?: never
    options?: never
    head?: never
    patch?: never
    trace?: never
  }
  '/whoami': {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    /**
     * Get the details of an API key
     * @description Returns the organization and the details of the key in the request. Available on the host of the dashboard too. Free.
     */
    get: operations['whoami']
    put?: never
    post?: never
    delete?: never
    options?: never
    head?: never
    patch?: never
    trace?: never
  }
  '/v1/balance': {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    /**
     * Get the balance
     * @description Returns the balance, the available part of it, and the next expiries. Free.
     */
    get: operations['getBalance']
    put?: never
    post?: never
    delete?: never
    options?: never
    head?: never
    patch?: never
    trace?: never
  }
  '/v1/usage': {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    /**
     * Get the usage over a range of days
     * @description Returns calls and credits by day, capability or key, for at most 400 days. Days are in UTC. Free.
     */
    get: operations['getUsage']
    put?: never
    post?: never
    delete?: never
    options?: never
    head?: never
    patch?: never
    trace?: never
  }
  '/v1/calls/{request_id}': {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    /**
     * Explain the cost of a call
     * @description Returns the facts of a call, the rules and prices that applied, the lots that paid for it, and later corrections. Free.
     */
    get: operations['explainCall']
    put?: never
    post?: never
    delete?: never
    options?: never
    head?: never
    patch?: never
    trace?: never
  }
  '/v1/calls/{request_id}/receipt': {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    /**
     * Get a receipt that can be verified offline
     * @description Returns the events of a call as they were recorded, with the proof that a signed checkpoint covers them. The answer is 202 until there is such a checkpoint, which is made within a minute. Free.
     */
    get: operations['getReceipt']
    put?: never
    post?: never
    delete?: never
    options?: never
    head?: never
    patch?: never
    trace?: never
  }
  '/v1/ledger/export': {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    /**
     * Export the ledger as it was recorded
     * @description Returns one event per line. Free.
     *
     *     The key needs the permission `ledger_read`.
     */
    get: operations['exportLedger']
    put?: never
    post?: never
    delete?: never
    options?: never
    head?: never
    patch?: never
    trace?: never
  }
}
export type webhooks = Record<string, never>
export interface components {
  schemas: {
    /** @description 401: the API key is missing or invalid. */
    AUTH_001: {
      /** @constant */
      error: 'unauthorized'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'AUTH_001'
    }
    /** @description 403: the key lacks the permission. */
    AUTH_002: {
      /** @constant */
      error: 'forbidden'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'AUTH_002'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 403: the caller's address is outside the key's allow-list. */
    AUTH_003: {
      /** @constant */
      error: 'forbidden'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'AUTH_003'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 400: the body is not a JSON object, has another media type, or is too large. */
    REQ_001: {
      /** @constant */
      error: 'bad_request'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'REQ_001'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 400: a required parameter is missing. */
    REQ_002: {
      /** @constant */
      error: 'bad_request'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'REQ_002'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 400: a parameter has the wrong type or value. */
    REQ_003: {
      /** @constant */
      error: 'validation_error'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'REQ_003'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 404: the route does not exist. */
    REQ_004: {
      /** @constant */
      error: 'not_found'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'REQ_004'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 405: the route does not accept this method. */
    REQ_005: {
      /** @constant */
      error: 'bad_request'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'REQ_005'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 400: ip is not a valid IPv4 or IPv6 address. */
    IP_001: {
      /** @constant */
      error: 'validation_error'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'IP_001'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 400: id is not a profile id, profile URL or person URN. */
    PROFNET_001: {
      /** @constant */
      error: 'validation_error'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'PROFNET_001'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 404: the profile is not found or not accessible. */
    PROFNET_002: {
      /** @constant */
      error: 'not_found'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'PROFNET_002'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 404: the organization has no recorded call with this request id. */
    CALL_001: {
      /** @constant */
      error: 'not_found'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'CALL_001'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 402: not enough credits. */
    CREDIT_001: {
      /** @constant */
      error: 'payment_required'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'CREDIT_001'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 429: a rate limit of the key is exceeded. */
    RATE_001: {
      /** @constant */
      error: 'rate_limited'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'RATE_001'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 422: the Idempotency-Key was used with another request. */
    IDEMP_001: {
      /** @constant */
      error: 'validation_error'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'IDEMP_001'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 409: a request with this Idempotency-Key is still being processed. */
    IDEMP_002: {
      /** @constant */
      error: 'conflict'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'IDEMP_002'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 500: something went wrong on our side. */
    SYS_001: {
      /** @constant */
      error: 'internal_error'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'SYS_001'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 503: temporarily unavailable; nothing was charged. */
    SYS_002: {
      /** @constant */
      error: 'service_unavailable'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'SYS_002'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
    /** @description 504: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
    SYS_003: {
      /** @constant */
      error: 'outcome_unknown'
      /** @description A message for people. It can change. */
      message: string
      /** @constant */
      code: 'SYS_003'
      /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
      request_id: string
      details: Record<string, never>
    }
  }
  responses: never
  parameters: {
    /** @description If you repeat a request with the same key and body, you get the first answer and are never charged again. A key has 1 to 255 visible characters, bare or in quotes, such as 7f1c2d9e-order-1881. */
    IdempotencyKey: string
  }
  requestBodies: never
  headers: {
    /**
     * @description The id of the call.
     * @example 01M8DK3T0E8112HZD09S836GCX
     */
    RequestId: string
    /**
     * @description The credits charged for the call.
     * @example 3
     */
    CreditsCharged: string
    /**
     * @description The remaining balance. It can be below zero if the organization has an overdraft.
     * @example 999995
     */
    CreditsRemaining: string
    /**
     * @description The limits of the key: the number of calls (q) in a number of seconds (w).
     * @example "second";q=10;w=1, "minute";q=6000;w=60, "day";q=1000000;w=86400
     */
    RateLimitPolicy: string
    /**
     * @description The number of calls left (r) in each window, and the number of seconds until the window resets (t).
     * @example "second";r=9;t=1, "minute";r=5996;t=60, "day";r=999996;t=86400
     */
    RateLimit: string
    /**
     * @description The number of seconds to wait before the next attempt.
     * @example 60
     */
    RetryAfter: number
    /**
     * @description The answer repeats the answer to an earlier call with the same Idempotency-Key, and was not charged again.
     * @example true
     */
    IdempotentReplayed: 'true'
  }
  pathItems: never
}
export type $defs = Record<string, never>
export interface operations {
  lookUpIp: {
    parameters: {
      query?: never
      header?: {
        /** @description If you repeat a request with the same key and body, you get the first answer and are never charged again. A key has 1 to 255 visible characters, bare or in quotes, such as 7f1c2d9e-order-1881. */
        'Idempotency-Key'?: components['parameters']['IdempotencyKey']
      }
      path?: never
      cookie?: never
    }
    requestBody: {
      content: {
        'application/json': {
          /** @description IPv4 or IPv6, as text */
          ip: string
        }
      }
    }
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          'Idempotent-Replayed': components['headers']['IdempotentReplayed']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              ip: string
              success: boolean
              type: ('IPv4' | 'IPv6') | null
              continent: string | null
              continent_code: string | null
              country: string | null
              country_code: string | null
              region: string | null
              region_code: string | null
              city: string | null
              latitude: number | null
              longitude: number | null
              postal: string | null
              is_eu: boolean
              calling_code: string | null
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. `IP_001`: ip is not a valid IPv4 or IPv6 address. `REQ_002`: a required parameter is missing. `REQ_003`: a parameter has the wrong type or value. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json':
            | components['schemas']['REQ_001']
            | components['schemas']['IP_001']
            | components['schemas']['REQ_002']
            | components['schemas']['REQ_003']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `CREDIT_001`: not enough credits. */
      402: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['CREDIT_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. `AUTH_002`: the key lacks the permission. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003'] | components['schemas']['AUTH_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `IDEMP_002`: a request with this Idempotency-Key is still being processed. */
      409: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['IDEMP_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `IDEMP_001`: the Idempotency-Key was used with another request. */
      422: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['IDEMP_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  validateEmail: {
    parameters: {
      query?: never
      header?: {
        /** @description If you repeat a request with the same key and body, you get the first answer and are never charged again. A key has 1 to 255 visible characters, bare or in quotes, such as 7f1c2d9e-order-1881. */
        'Idempotency-Key'?: components['parameters']['IdempotencyKey']
      }
      path?: never
      cookie?: never
    }
    requestBody: {
      content: {
        'application/json': {
          /** @description As typed or pasted. A malformed address gets the status `invalid` */
          email: string
          /** @description Adds the company behind a business domain. Default: false */
          include_company_data?: boolean | null
        }
      }
    }
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          'Idempotent-Replayed': components['headers']['IdempotentReplayed']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              email: string
              normalized: string | null
              local_part: string | null
              domain: string | null
              ascii_domain: string | null
              /** @enum {string} */
              status: 'valid' | 'invalid' | 'risky' | 'unknown'
              sub_status: string
              score: number
              did_you_mean: string | null
              checks: {
                syntax: {
                  valid: boolean
                  reason:
                    | (
                        | 'empty'
                        | 'too_long'
                        | 'no_at_sign'
                        | 'control_character'
                        | 'local_part_empty'
                        | 'local_part_too_long'
                        | 'local_part_character'
                        | 'local_part_dot'
                        | 'quoted_string'
                        | 'domain_empty'
                        | 'domain_too_long'
                        | 'domain_character'
                        | 'domain_dot'
                        | 'label_too_long'
                        | 'label_hyphen'
                        | 'label_idna'
                        | 'domain_literal'
                        | 'not_normalizable'
                      )
                    | null
                  smtputf8: boolean | null
                  quoted: boolean | null
                  domain_literal: boolean | null
                }
                disposable: boolean | null
                role_based: boolean | null
                free_provider: boolean | null
                privacy_relay: boolean | null
                subaddress: string | null
                mx: {
                  found: boolean | null
                  null_mx: boolean | null
                  implicit: boolean | null
                  provider: string | null
                  records: {
                    exchange: string
                    priority: number
                  }[]
                }
                smtp: {
                  attempted: boolean
                  connected: boolean | null
                  deliverable: boolean | null
                  catch_all: boolean | null
                  mailbox_full: boolean | null
                  disabled: boolean | null
                  code: number | null
                  enhanced_code: string | null
                }
              }
              company: {
                name: string | null
                legal_name: string | null
                domain: string
                website: string | null
                industry: string | null
                size_range: string | null
                employee_count: number | null
                founded_year: number | null
                location: {
                  locality: string | null
                  region: string | null
                  country: string | null
                  country_code: string | null
                }
                profnet_url: string | null
                logo_url: string | null
                source: string
                source_updated_at: string | null
              } | null
              /** @enum {string} */
              company_status: 'found' | 'not_found' | 'not_requested' | 'not_applicable'
              billing: {
                billable: boolean
                validation_credits: string
                company_credits: string
              }
              cached: boolean
              checked_at: string
              retry_after: number | null
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. `REQ_002`: a required parameter is missing. `REQ_003`: a parameter has the wrong type or value. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json':
            | components['schemas']['REQ_001']
            | components['schemas']['REQ_002']
            | components['schemas']['REQ_003']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `CREDIT_001`: not enough credits. */
      402: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['CREDIT_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. `AUTH_002`: the key lacks the permission. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003'] | components['schemas']['AUTH_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `IDEMP_002`: a request with this Idempotency-Key is still being processed. */
      409: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['IDEMP_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `IDEMP_001`: the Idempotency-Key was used with another request. */
      422: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['IDEMP_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  retrieveProfile: {
    parameters: {
      query?: never
      header?: {
        /** @description If you repeat a request with the same key and body, you get the first answer and are never charged again. A key has 1 to 255 visible characters, bare or in quotes, such as 7f1c2d9e-order-1881. */
        'Idempotency-Key'?: components['parameters']['IdempotencyKey']
      }
      path?: never
      cookie?: never
    }
    requestBody: {
      content: {
        'application/json': {
          /** @description A profile id (lid), a profile URL, or a person URN */
          id: string
          /** @description true: data up to 30 days old. false: data at most a minute old, at a different price. Default: true */
          cached?: boolean | null
        }
      }
    }
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          'Idempotent-Replayed': components['headers']['IdempotentReplayed']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              firstname: string | null
              lastname: string | null
              numOfConnections: number | null
              headline: string | null
              url: string | null
              lid: string | null
              about: string | null
              skills: string[]
              languages: {
                value: string
                norm: string | null
              }[]
              address: {
                street: string | null
                city: string | null
                state: string | null
                postal_code: string | null
                country: string | null
                country_code: string | null
              } | null
              educations: {
                urn: string | null
                name: string | null
                degree: string | null
                startDate: string | null
                endDate: string | null
              }[]
              employment_history: {
                title: string | null
                description: string | null
                startDate: string | null
                endDate: string | null
                location: string | null
                is_current: boolean
                company: {
                  lid: string | null
                  company_name: string | null
                  urn: string | null
                } | null
              }[]
              emails: {
                value: string
                sub_type: string | null
              }[]
              phone_numbers: {
                value: string
                sub_type: string | null
              }[]
              deleted: boolean
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
            /**
             * @description Present only if the data comes from the cache
             * @constant
             */
            cached?: true
            /** @description The age of cached data */
            cache_age_hours?: number
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. `PROFNET_001`: id is not a profile id, profile URL or person URN. `REQ_002`: a required parameter is missing. `REQ_003`: a parameter has the wrong type or value. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json':
            | components['schemas']['REQ_001']
            | components['schemas']['PROFNET_001']
            | components['schemas']['REQ_002']
            | components['schemas']['REQ_003']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `CREDIT_001`: not enough credits. */
      402: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['CREDIT_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. `AUTH_002`: the key lacks the permission. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003'] | components['schemas']['AUTH_002']
        }
      }
      /** @description `PROFNET_002`: the profile is not found or not accessible. */
      404: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['PROFNET_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `IDEMP_002`: a request with this Idempotency-Key is still being processed. */
      409: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['IDEMP_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `IDEMP_001`: the Idempotency-Key was used with another request. */
      422: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['IDEMP_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  listPixelLimits: {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    requestBody?: never
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              limits: {
                domain: string
                /** @enum {string} */
                period: 'day' | 'month'
                number: number
                used: number | null
                remaining: number | null
                resets_at: string
              }[]
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. `AUTH_002`: the key lacks the permission. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003'] | components['schemas']['AUTH_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  setPixelLimit: {
    parameters: {
      query?: never
      header?: {
        /** @description If you repeat a request with the same key and body, you get the first answer and are never charged again. A key has 1 to 255 visible characters, bare or in quotes, such as 7f1c2d9e-order-1881. */
        'Idempotency-Key'?: components['parameters']['IdempotencyKey']
      }
      path?: never
      cookie?: never
    }
    requestBody: {
      content: {
        'application/json': {
          /** @description A registrable domain or a subdomain; the rule covers the domain and all its subdomains */
          domain: string
          /**
           * @description A calendar day or month in UTC
           * @enum {string}
           */
          period: 'day' | 'month'
          number: number
        }
      }
    }
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          'Idempotent-Replayed': components['headers']['IdempotentReplayed']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              domain: string
              /** @enum {string} */
              period: 'day' | 'month'
              number: number
              used: number | null
              remaining: number | null
              resets_at: string
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. `REQ_002`: a required parameter is missing. `REQ_003`: a parameter has the wrong type or value. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json':
            | components['schemas']['REQ_001']
            | components['schemas']['REQ_002']
            | components['schemas']['REQ_003']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. `AUTH_002`: the key lacks the permission. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003'] | components['schemas']['AUTH_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `IDEMP_002`: a request with this Idempotency-Key is still being processed. */
      409: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['IDEMP_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `IDEMP_001`: the Idempotency-Key was used with another request. */
      422: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['IDEMP_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  removePixelLimit: {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    requestBody: {
      content: {
        'application/json': {
          /** @description A registrable domain or a subdomain; the rule covers the domain and all its subdomains */
          domain: string
          /**
           * @description A calendar day or month in UTC
           * @enum {string}
           */
          period: 'day' | 'month'
        }
      }
    }
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              domain: string
              /** @enum {string} */
              period: 'day' | 'month'
              removed: boolean
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. `REQ_002`: a required parameter is missing. `REQ_003`: a parameter has the wrong type or value. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json':
            | components['schemas']['REQ_001']
            | components['schemas']['REQ_002']
            | components['schemas']['REQ_003']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. `AUTH_002`: the key lacks the permission. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003'] | components['schemas']['AUTH_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  listPixelBlocks: {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    requestBody?: never
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              blocks: {
                domain: string
                /** @constant */
                blocked: true
                blocked_at: string
              }[]
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. `AUTH_002`: the key lacks the permission. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003'] | components['schemas']['AUTH_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  blockPixel: {
    parameters: {
      query?: never
      header?: {
        /** @description If you repeat a request with the same key and body, you get the first answer and are never charged again. A key has 1 to 255 visible characters, bare or in quotes, such as 7f1c2d9e-order-1881. */
        'Idempotency-Key'?: components['parameters']['IdempotencyKey']
      }
      path?: never
      cookie?: never
    }
    requestBody: {
      content: {
        'application/json': {
          /** @description A registrable domain or a subdomain; the rule covers the domain and all its subdomains */
          domain: string
        }
      }
    }
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          'Idempotent-Replayed': components['headers']['IdempotentReplayed']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              domain: string
              /** @constant */
              blocked: true
              blocked_at: string
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. `REQ_002`: a required parameter is missing. `REQ_003`: a parameter has the wrong type or value. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json':
            | components['schemas']['REQ_001']
            | components['schemas']['REQ_002']
            | components['schemas']['REQ_003']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. `AUTH_002`: the key lacks the permission. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003'] | components['schemas']['AUTH_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `IDEMP_002`: a request with this Idempotency-Key is still being processed. */
      409: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['IDEMP_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `IDEMP_001`: the Idempotency-Key was used with another request. */
      422: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['IDEMP_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  unblockPixel: {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    requestBody: {
      content: {
        'application/json': {
          /** @description A registrable domain or a subdomain; the rule covers the domain and all its subdomains */
          domain: string
        }
      }
    }
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              domain: string
              /** @constant */
              blocked: false
              blocked_at: null
              removed: boolean
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. `REQ_002`: a required parameter is missing. `REQ_003`: a parameter has the wrong type or value. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json':
            | components['schemas']['REQ_001']
            | components['schemas']['REQ_002']
            | components['schemas']['REQ_003']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. `AUTH_002`: the key lacks the permission. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003'] | components['schemas']['AUTH_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  decidePixel: {
    parameters: {
      query?: never
      header?: {
        /** @description If you repeat a request with the same key and body, you get the first answer and are never charged again. A key has 1 to 255 visible characters, bare or in quotes, such as 7f1c2d9e-order-1881. */
        'Idempotency-Key'?: components['parameters']['IdempotencyKey']
      }
      path?: never
      cookie?: never
    }
    requestBody: {
      content: {
        'application/json': {
          /** @description The absolute http or https URL that is about to be requested */
          url: string
          /** @description A repeated hit with the same id within a day gets the same answer and is counted once */
          hit_id?: string | null
        }
      }
    }
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          'Idempotent-Replayed': components['headers']['IdempotentReplayed']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              fire: boolean
              /** @enum {string} */
              reason: 'no_rule' | 'allowed' | 'limit' | 'blocked' | 'unavailable'
              domain: string | null
              remaining: number | null
              resets_at: string | null
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. `REQ_002`: a required parameter is missing. `REQ_003`: a parameter has the wrong type or value. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json':
            | components['schemas']['REQ_001']
            | components['schemas']['REQ_002']
            | components['schemas']['REQ_003']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. `AUTH_002`: the key lacks the permission. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003'] | components['schemas']['AUTH_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `IDEMP_002`: a request with this Idempotency-Key is still being processed. */
      409: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['IDEMP_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `IDEMP_001`: the Idempotency-Key was used with another request. */
      422: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['IDEMP_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  whoami: {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    requestBody?: never
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            organization: string
            api_key_id: string
            permissions: (
              | 'email_validation'
              | 'ip_lookup'
              | 'profnet_scraping'
              | 'pixel_control'
              | 'ledger_read'
            )[]
            rate_limits: {
              requests_per_minute: number
              requests_per_day: number
            }
            created_at: string
            last_used: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  getBalance: {
    parameters: {
      query?: never
      header?: never
      path?: never
      cookie?: never
    }
    requestBody?: never
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              balance: string
              available: string
              overdraft_limit: string
              threshold: string | null
              expiring: {
                grant_id: string
                remaining: string
                expires_at: string
              }[]
              as_of: {
                revision: number
                position: string
                recorded_at: string | null
              }
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  getUsage: {
    parameters: {
      query: {
        /** @description The first day */
        from: string
        /** @description The last day */
        to: string
        /** @description Default: day */
        group_by?: 'day' | 'capability' | 'key' | 'rule'
      }
      header?: never
      path?: never
      cookie?: never
    }
    requestBody?: never
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              /** Format: date */
              from: string
              /** Format: date */
              to: string
              /** @enum {string} */
              group_by: 'day' | 'capability' | 'key' | 'rule'
              groups: {
                name: string
                calls: number
                answered: number
                refused: number
                failed: number
                rate_limited: number
                charged: string
              }[]
              total: {
                calls: number
                answered: number
                refused: number
                failed: number
                rate_limited: number
                charged: string
              }
              as_of: {
                position: string
                at: string
              }
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. `REQ_002`: a required parameter is missing. `REQ_003`: a parameter has the wrong type or value. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json':
            | components['schemas']['REQ_001']
            | components['schemas']['REQ_002']
            | components['schemas']['REQ_003']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  explainCall: {
    parameters: {
      query?: never
      header?: never
      path: {
        /** @description The `request_id` of a call by your organization */
        request_id: string
      }
      cookie?: never
    }
    requestBody?: never
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              request_id: string
              organization_id: string
              key_id: string
              at: string
              /** @enum {string} */
              capability:
                | 'email_validation'
                | 'ip_lookup'
                | 'profile'
                | 'pixel'
                | 'whoami'
                | 'account'
                | 'ledger_export'
              /** @enum {string} */
              outcome: 'answered' | 'refused' | 'failed'
              code: string | null
              facts:
                | {
                    /** @constant */
                    kind: 'replay'
                  }
                | {
                    /** @constant */
                    kind: 'refusal'
                    code: string
                  }
                | {
                    /** @constant */
                    kind: 'email_validation'
                    /** @enum {string} */
                    status: 'valid' | 'invalid' | 'risky' | 'unknown'
                    sub_status: string
                    decision_row: number
                    /** @enum {string} */
                    company_status: 'found' | 'not_found' | 'not_requested' | 'not_applicable'
                    domain: string | null
                    address_hmac: string
                  }
                | {
                    /** @constant */
                    kind: 'ip_lookup'
                    success: boolean
                    country_code: string | null
                    address_hmac: string
                  }
                | {
                    /** @constant */
                    kind: 'profile'
                    /** @enum {string} */
                    source: 'cached' | 'fresh' | 'deleted'
                    age_seconds: number
                    subject_id: string
                  }
                | {
                    /** @constant */
                    kind: 'pixel'
                    /** @enum {string} */
                    action:
                      | 'limit_set'
                      | 'limit_removed'
                      | 'limits_listed'
                      | 'blocked'
                      | 'unblocked'
                      | 'blocks_listed'
                      | 'decided'
                    domain: string | null
                    fire: boolean | null
                  }
                | {
                    /** @constant */
                    kind: 'whoami'
                  }
                | {
                    /** @constant */
                    kind: 'account'
                    /** @enum {string} */
                    view: 'balance' | 'usage' | 'call' | 'receipt'
                  }
                | {
                    /** @constant */
                    kind: 'ledger_export'
                    from_revision: number
                    through_revision: number
                  }
              repeats: string | null
              trace_id: string | null
              readonly replays: {
                request_id: string | null
                at: string
              }[]
              cost: {
                charged: string
                now: string
                charge_id: string | null
                free_by: {
                  rule: string
                  rule_version: number
                  because: string
                } | null
                readonly lines: {
                  rule: string
                  rule_version: number
                  because: string
                  sku: string
                  amount: string
                  book_amount: string | null
                  override: {
                    override_id: string
                    amount: string | null
                    effective_from: string
                    reason: string | null
                    revision: number
                  } | null
                }[]
                price_book: {
                  version: number
                  digest: string
                } | null
              }
              readonly lots: {
                grant_id: string
                amount: string
                opened: {
                  /** @enum {string} */
                  by: 'grant' | 'adjustment'
                  at: string
                  amount: string
                  reason: string
                  reference: string | null
                  priority: number
                  expires_at: string | null
                  revision: number
                } | null
              }[]
              overdraft: string
              balance: {
                before: string
                after: string
              }
              readonly adjustments: {
                adjustment_id: string
                /** @enum {string} */
                kind: 'refund' | 'reversal' | 'adjustment' | 'void' | 'rerate'
                amount: string
                at: string
                reason: string
                rerate_run: string | null
                event: {
                  type: string
                  event_id: string
                  revision: number
                  position: string
                  recorded_at: string
                  digest: string
                } | null
              }[]
              readonly events: {
                type: string
                event_id: string
                revision: number
                position: string
                recorded_at: string
                digest: string
              }[]
              checkpoint: {
                size: number
                root: string
                at: string
              } | null
              as_of: {
                revision: number
                position: string
                recorded_at: string
              }
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. `REQ_003`: a parameter has the wrong type or value. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001'] | components['schemas']['REQ_003']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003']
        }
      }
      /** @description `CALL_001`: the organization has no recorded call with this request id. */
      404: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['CALL_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  getReceipt: {
    parameters: {
      query?: never
      header?: never
      path: {
        /** @description The `request_id` of a call by your organization */
        request_id: string
      }
      cookie?: never
    }
    requestBody?: never
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              /** @constant */
              covered: true
              request_id: string
              verifier_key: string
              readonly events: {
                stream: string
                revision: number
                event_id: string
                type: string
                metadata: string
                data: string
                previous_digest: string
                proof: string
              }[]
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description The result is not ready yet. Repeat the request after `Retry-After`. */
      202: {
        headers: {
          'Retry-After': components['headers']['RetryAfter']
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          [name: string]: unknown
        }
        content: {
          'application/json': {
            result: {
              /** @constant */
              covered: false
              request_id: string
            }
            /** @description Milliseconds. */
            processing_time_ms: number
            /** @description A ULID. It identifies the call in the ledger: quote it when you ask about an answer or a charge. */
            request_id: string
          }
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. `REQ_003`: a parameter has the wrong type or value. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001'] | components['schemas']['REQ_003']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003']
        }
      }
      /** @description `CALL_001`: the organization has no recorded call with this request id. */
      404: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['CALL_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
  exportLedger: {
    parameters: {
      query?: {
        /** @description The first revision to export. Default: 0 */
        from_revision?: string
        /** @description The number of events, at most 10000. Default: 10000 */
        max?: string
      }
      header?: never
      path?: never
      cookie?: never
    }
    requestBody?: never
    responses: {
      /** @description The answer. */
      200: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Credits-Charged': components['headers']['CreditsCharged']
          'Credits-Remaining': components['headers']['CreditsRemaining']
          'RateLimit-Policy': components['headers']['RateLimitPolicy']
          RateLimit: components['headers']['RateLimit']
          [name: string]: unknown
        }
        content: {
          'application/jsonl': string
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. `REQ_003`: a parameter has the wrong type or value. */
      400: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001'] | components['schemas']['REQ_003']
        }
      }
      /** @description `AUTH_001`: the API key is missing or invalid. */
      401: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_001']
        }
      }
      /** @description `AUTH_003`: the caller's address is outside the key's allow-list. `AUTH_002`: the key lacks the permission. */
      403: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['AUTH_003'] | components['schemas']['AUTH_002']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      408: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      413: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      415: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `RATE_001`: a rate limit of the key is exceeded. */
      429: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['RATE_001']
        }
      }
      /** @description `REQ_001`: the body is not a JSON object, has another media type, or is too large. */
      431: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['REQ_001']
        }
      }
      /** @description `SYS_001`: something went wrong on our side. */
      500: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_001']
        }
      }
      /** @description `SYS_002`: temporarily unavailable; nothing was charged. */
      503: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_002']
        }
      }
      /** @description `SYS_003`: it is not known whether the call was charged; repeat it with the same Idempotency-Key. */
      504: {
        headers: {
          'X-Request-Id': components['headers']['RequestId']
          'Retry-After': components['headers']['RetryAfter']
          [name: string]: unknown
        }
        content: {
          'application/json': components['schemas']['SYS_003']
        }
      }
    }
  }
}
