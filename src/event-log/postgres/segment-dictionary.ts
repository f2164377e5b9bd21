/**
 * What zstd is given to find in the events of a segment: the text that most of them have in common, so that even a single call is
 * stored by what is its own. A segment can be opened only by the dictionary it was packed with. So this one never changes, not by a
 * byte; another one comes with a mark of its own beside it.
 *
 * What is alike most often is last: the nearer, the shorter zstd names it. What differs in every event is left out.
 */

const separator = '\x1e'

const after = (version: number, causation: string): string =>
  `${separator}{"schema_version":${version},"request_id":"01"${causation},"actor":"key:","effective_at":"2026-","recorded_at":"2026-","digest":"`

const used = (members: string): string => `KeyUsed${separator}{"key_id":"${members}}${after(1, '')}`

const charged = (sku: string, rule: string, amount: string, line = ''): string =>
  `CreditCharged${separator}{"charge_id":"-5","sku":"${sku}","amount":"${amount}","lines":[{"sku":"${sku}","amount":"${amount}",` +
  `"rule":"${rule}","rule_version":1}${line}],"rule":"${rule}","rule_version":1,"price_book_version":1,"allocations":[{"grant_id":"-5",` +
  `"amount":"${amount}"}],"price_book_digest":"${after(2, ',"causation_id":"-5"')}`

const free = (rule: string): string => `,"free_by":{"rule":"${rule}","rule_version":1}`

const texts = [
  `RateLimitExceeded${separator}{"key_id":"","policy":"minute","window":"2026-","count":`,
  `CallsRefused${separator}{"key_id":"","code":"CREDIT_001","outcome":"refused","window":"2026-","counts":[{"capability":"profile","count":`,
  `CreditGranted${separator}{"grant_id":"","amount":"1000","priority":100,"expires_at":null,"reason":"","overdraft_repaid":"0","reference":null}`,
  `CreditAdjusted${separator}{"adjustment_id":"","adjusts":null,"amount":"","reason":"","rerate_run":null,"allocations":[],"overdraft_repaid":"0","kind":"refund","fills":[{"grant_id":"","amount":"1","priority":100,"expires_at":null,"revision":1,"granted":"1000"}]}`,
  `","capability":"whoami","outcome":"answered","facts":{"kind":"whoami"}${free('whoami')}`,
  `","capability":"account","outcome":"answered","facts":{"kind":"account","view":"balance"}${free('account')}`,
  `","capability":"pixel","outcome":"answered","facts":{"kind":"pixel","action":"decided","domain":".com","fire":true}${free('pixel')}`,
  `","facts":{"kind":"replay"}${free('replay')}`,
  used(
    `","capability":"","outcome":"refused","code":"REQ_001","facts":{"kind":"refusal","code":"CREDIT_001"}${free('refusal')}`,
  ),
  used(
    `","capability":"profile","outcome":"answered","facts":{"kind":"profile","source":"fresh","age_seconds":0,"subject_id":"sub_01"}`,
  ),
  charged('profile_fresh', 'profile.fresh', '5'),
  used(
    `","capability":"profile","outcome":"answered","facts":{"kind":"profile","source":"cached","age_seconds":86400,"subject_id":"sub_01"}`,
  ),
  charged('profile_cached', 'profile.cached', '2'),
  used(
    `","capability":"email_validation","outcome":"answered","facts":{"kind":"email_validation","status":"unknown","sub_status":"timeout","decision_row":14,"company_status":"not_applicable","domain":".com","address_hmac":""}${free('email_validation.unknown')}`,
  ),
  used(
    `","capability":"email_validation","outcome":"answered","facts":{"kind":"email_validation","status":"risky","sub_status":"catch_all","decision_row":15,"company_status":"not_found","domain":".net","address_hmac":""}${free('email_validation.risky')}`,
  ),
  used(
    `","capability":"email_validation","outcome":"answered","facts":{"kind":"email_validation","status":"invalid","sub_status":"mailbox_not_found","decision_row":13,"company_status":"not_applicable","domain":".org","address_hmac":""}${free('email_validation.invalid')}`,
  ),
  used(
    `","capability":"email_validation","outcome":"answered","facts":{"kind":"email_validation","status":"valid","sub_status":"accepted","decision_row":17,"company_status":"found","domain":".com","address_hmac":""},"idempotent":true,"request_fingerprint":"`,
  ),
  charged(
    'email_validation',
    'email_validation.valid',
    '1',
    ',{"sku":"company_data","amount":"2","rule":"email_validation.company_found","rule_version":1}',
  ),
  used(
    `","capability":"email_validation","outcome":"answered","facts":{"kind":"email_validation","status":"valid","sub_status":"accepted","decision_row":17,"company_status":"not_requested","domain":".com","address_hmac":""}`,
  ),
  charged('email_validation', 'email_validation.valid', '1'),
  used(
    `","capability":"ip_lookup","outcome":"answered","facts":{"kind":"ip_lookup","success":false,"country_code":null,"address_hmac":""}${free('ip_lookup.not_located')}`,
  ),
  used(
    `","capability":"ip_lookup","outcome":"answered","facts":{"kind":"ip_lookup","success":true,"country_code":"US","address_hmac":""}`,
  ),
  charged('ip_lookup', 'ip_lookup.located', '1'),
]

export const segmentDictionary = Buffer.from(texts.join(''))
