import { z } from 'zod'

/** What a partner can call. A capability is also the name under which its calls are counted and priced. */
export const capability = z.enum(['email_validation', 'ip_lookup', 'profile', 'pixel', 'whoami'])
export type Capability = z.infer<typeof capability>

/** What a key may be allowed to do (Spec §2.2, decision 6). Whoami needs none. */
export const permission = z.enum(['email_validation', 'ip_lookup', 'profnet_scraping', 'pixel_control'])
export type Permission = z.infer<typeof permission>
