/**
 * Local parts that name a function, not a person. RFC 2142 comes first; the rest is what organizations really use, in
 * several languages. Left out on purpose: `test`, numbers and years, and words that are also given names or surnames.
 * Written without separators: `customer-service`, `customer_service` and `customerservice` are one role.
 */
const roleNames: ReadonlySet<string> = new Set(
  [
    // RFC 2142 §3 to §6, and RFC 5321 §4.5.1.
    'info marketing sales support abuse noc security postmaster hostmaster usenet news webmaster www uucp ftp',
    // Mail machinery.
    'mailerdaemon noreply donotreply dontreply nepasrepondre bounce bounces root admin administrator mail mailbox',
    'mailadmin email listserv majordomo newsletter newsletters notification notifications alert alerts automailer',
    'spam dmarc unsubscribe subscribe list lists owner',
    // Operations.
    'it itsupport helpdesk servicedesk sysadmin systemadmin devops ops operations dns domains domainadmin hosting',
    'network server tech technical technik webteam web dev developer developers engineering cert csirt secops infosec',
    'privacy dataprotection dpo gdpr datenschutz rgpd compliance legal copyright dmca phishing',
    // Offices.
    'office contact contacts contactus hello enquiries enquiry inquiries inquiry general reception frontdesk mailroom',
    'secretary secretariat management board ceo cfo cto coo cio director manager team staff everyone allstaff',
    'feedback help customercare customerservice customersupport clientservices service services care complaints',
    // Money and trade.
    'account accounts accounting accountspayable accountsreceivable billing finance invoice invoices payments payroll',
    'orders order order purchasing procurement shop store booking bookings reservations reservation shipping returns',
    'export import wholesale partners partner affiliates vendors suppliers',
    // People and publicity.
    'hr humanresources jobs career careers recruiting recruitment talent training press pr media mediarelations',
    'publicrelations editor editorial advertising ads events community investorrelations ir webinar membership',
    // German.
    'buero kontakt verwaltung vertrieb verkauf buchhaltung rechnung rechnungen bewerbung presse anfrage',
    'bestellung kundenservice kundendienst sekretariat poststelle zentrale einkauf empfang versand redaktion',
    // French, Spanish, Portuguese, Italian.
    'contacto contato contatti contatto ventas vendas vendite commercial comercial commerciale comptabilite',
    'contabilidad contabilidade amministrazione administracion administracao accueil secretaria segreteria',
    'recrutement rrhh rh facturacion facturas ufficio direction direccion prensa imprensa stampa soporte suporte',
    'atendimento informacion reservas pedidos ordini assistenza servizioclienti serviceclient',
    // Dutch, Polish, Czech, Nordic.
    'verkoop administratie boekhouding klantenservice biuro kontakty sprzedaz ksiegowosc rekrutacja sekretariat',
    'obchod fakturace faktura fakturor kundtjanst kundeservice salg forsaljning',
  ].flatMap((line) => line.split(' ')),
)

/** How many roles are known; spelling variants by separators count once. */
export const roleCount = roleNames.size

/** No role is longer; longer local parts are not worth folding. */
const roleLengthMax = 32
const separators = /[._-]/g

/** Whether a local part names a function. Letter case, separators and a `+tag` do not matter. */
export const isRoleName = (localPart: string): boolean => {
  let end = localPart.length
  let plain = true
  for (let at = 0; at < end; at++) {
    const code = localPart.charCodeAt(at)
    if (code >= 97 && code <= 122) continue
    // No role has a digit in it, and most people's local parts that are no plain word do.
    if (code >= 48 && code <= 57) return false
    if (code === 43 && at > 0) end = at
    else plain = false
  }
  if (end > roleLengthMax) return false
  const base = end === localPart.length ? localPart : localPart.slice(0, end)
  return roleNames.has(plain ? base : base.toLowerCase().replace(separators, ''))
}
