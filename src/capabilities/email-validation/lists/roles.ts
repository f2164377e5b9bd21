/**
 * Local parts for a function instead of a person: those of RFC 2142, and those that organizations use in several languages. `test`, numbers,
 * years, two letters that can be initials, and words that are also names (`bill`, `grant`, `dean`) are not included. Names are written
 * without separators: `customer-service`, `customer_service` and `customerservice` are one role.
 */
const roleNames: ReadonlySet<string> = new Set(
  [
    // RFC 2142 §3 to §6, and RFC 5321 §4.5.1.
    'info marketing sales support abuse noc security postmaster hostmaster usenet news webmaster www uucp ftp',
    // Mail systems.
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
    'orders order purchasing procurement shop store booking bookings reservations reservation shipping returns',
    'export import wholesale partners partner affiliates vendors suppliers',
    // People and publicity.
    'hr humanresources jobs career careers recruiting recruitment talent training press pr media mediarelations',
    'publicrelations editor editorial advertising ads events community investorrelations ir webinar membership',
    'admissions registrar registration registrations enrollment enrolment students alumni faculty library librarian',
    'bursar treasurer treasury chairman president principal rector campus school academy courses learning education',
    'investors investor shareholders subscriptions subscription subscribers members donations donate fundraising grants',
    'volunteer volunteers sponsorship sponsors exhibitors speakers conference conferences tickets ticketing boxoffice',
    'rentals leasing housing facilities maintenance parking safety fraud risk audit tax payable receivable receivables',
    'remittance collections credit creditcontrol claims underwriting quotes quote quotations estimates rfq tenders bids',
    'contracts purchase purchases sourcing buyers supply logistics warehouse dispatch delivery deliveries fulfillment',
    'fulfilment freight production manufacturing quality lab research innovation product products design creative',
    'brand campaigns social socialmedia digital seo content editors newsroom newsdesk publicity communications comms',
    'webinars travel tours guestservices guestrelations housekeeping catering banquets concierge frontoffice backoffice',
    'customerrelations customers customer clients client consumer users techsupport technicalsupport helpline hotline',
    'warranty repairs repair parts installation emergency oncall monitoring status systems system backup servers cloud',
    'daemon cron apache nginx wwwdata git github gitlab jenkins jira build deploy bot robot api apps app software',
    'licensing licenses trademarks patents foundation trustees council cityhall clerk embassy consulate visa passport',
    'company corporate business businessdevelopment bizdev newbusiness presales aftersales salesteam ask questions',
    'question faq request requests rsvp survey surveys apply applications applicants vacancies vacancy resumes',
    'employment internships internship people personnel benefits pensions invoicing bills payment cashier bookkeeping',
    'accountant finances financial controller controlling budget optout unsub nobody autoreply autoresponder domain',
    'registry peering webadmin adminteam all everybody groups hi hey hallo hola bonjour moderator moderators forum',
    'soc hrdept hrteam police fire mayor planning permits utilities water taxes elections courts records',
    // German.
    'buero buro kontakt verwaltung vertrieb verkauf buchhaltung rechnung rechnungen bewerbung bewerbungen presse anfrage',
    'anfragen bestellung bestellungen kundenservice kundendienst kundenbetreuung sekretariat poststelle zentrale einkauf',
    'empfang versand redaktion personal personalabteilung karriere ausbildung geschaeftsfuehrung geschaftsfuhrung',
    'geschaeftsleitung leitung buchung buchungen reservierung reservierungen termin termine praxis kanzlei werkstatt',
    'hausverwaltung mahnwesen debitoren kreditoren rechnungswesen finanzen fibu lager logistik disposition auftrag',
    'auftraege angebot angebote reklamation beschwerde beratung hilfe mitglieder verein vorstand schule schulleitung',
    'studium pruefungsamt bibliothek gemeinde rathaus buergerbuero stadtverwaltung bauamt ordnungsamt standesamt',
    'spenden medien werbung veranstaltungen abo leserservice leserbriefe anzeigen allgemein impressum kasse zahlung',
    'datenschutzbeauftragter datenschutzbeauftragte mahnung hausmeister pfarramt pfarrbuero anmeldung notaufnahme',
    // French.
    'infos information informations renseignements contactez accueil administration directeur comptable compta',
    'comptabilite facture factures facturation achats ventes commerciaux commercial commerciale commande commandes',
    'devis livraison livraisons logistique expedition technique informatique sav clientele serviceclient serviceclients',
    'relationclient rh ressourceshumaines drh emploi emplois carriere carrieres candidature candidatures stages',
    'formation formations recrutement communication publicite abonnement abonnements adherents adhesion inscription',
    'inscriptions scolarite etudiants bibliotheque mairie urbanisme etatcivil juridique reclamation reclamations',
    'evenements evenementiel location locations gestion syndic agence boutique magasin bureau cabinet direction',
    'stage standard dsi',
    // Spanish.
    'informacion contacto ventas compras comercial pedidos pedido facturas facturacion contabilidad administracion',
    'administrador admon gerencia direccion secretaria recepcion reservas atencionalcliente atencioncliente clientes',
    'servicioalcliente servicio servicios soporte sistemas tecnico recursoshumanos rrhh empleo empleos trabajo',
    'seleccion curriculum prensa comunicacion comunicaciones mercadeo publicidad suscripciones eventos inscripciones',
    'admisiones alumnos estudiantes biblioteca rectoria registro tesoreria cobranza cobranzas pagos proveedores',
    'logistica almacen taller tienda oficina ayuntamiento alcaldia denuncias quejas reclamos sugerencias consultas',
    'calidad exportaciones ingenieria proyectos juridico boletin noticias informes',
    // Portuguese.
    'financeiro vendas contato atendimento sac faleconosco ouvidoria suporte recrutamento curriculo curriculos vagas',
    'contabilidade faturamento cobranca nfe notafiscal administrativo administracao diretoria recepcao orcamento',
    'orcamentos licitacao licitacoes expedicao estoque almoxarifado qualidade engenharia projetos imprensa comunicacao',
    'inscricoes matriculas prefeitura gabinete loja exportacao importacao manutencao informatica cadastro adm',
    'departamentopessoal geral escritorio fornecedores tesouraria pagamentos contas contasapagar contasareceber',
    'assinaturas fiscal vestibular matricula',
    // Italian.
    'informazioni contatti contatto vendite acquisti ordini preventivi fatture fatturazione contabilita amministrazione',
    'direzione segreteria prenotazioni assistenza assistenzaclienti servizioclienti clienti supporto ufficiotecnico',
    'personale risorseumane lavoro lavoraconnoi selezione stampa ufficiostampa comunicazione pubblicita redazione',
    'abbonamenti eventi iscrizioni studenti didattica protocollo comune anagrafe tributi ragioneria legale qualita',
    'magazzino spedizioni estero negozio ufficio studio pec posta reclami commerciale',
    // Dutch.
    'verkoop administratie boekhouding klantenservice facturen facturatie inkoop receptie balie secretariaat',
    'personeelszaken vacatures sollicitaties',
    // Polish and Czech.
    'biuro kontakty sprzedaz ksiegowosc rekrutacja sekretariat zamowienia serwis reklamacje kadry obsluga faktury',
    'sklep iod administracja obchod fakturace podpora podatelna ucetni uctarna reklamace',
    // Swedish, Danish, Norwegian and Finnish.
    'faktura fakturor ekonomi kundtjanst kundeservice salg forsaljning bestilling post postmottak firmapost regnskap',
    'bogholderi myynti asiakaspalvelu toimisto laskutus',
    // Hungarian, Romanian and Turkish.
    'ertekesites penzugy ugyfelszolgalat iroda vanzari contabilitate comenzi birou satis muhasebe destek bilgi iletisim',
    'insankaynaklari',
  ].flatMap((line) => line.split(' ')),
)

/** Words for a department or place that can follow a role after a separator. */
const qualifiers: ReadonlySet<string> = new Set(
  [
    'team dept department desk office center centre group inbox global international emea apac latam europe asia canada australia',
    'india eu uk us usa de fr es it nl be at ch ca au in br mx jp cn fi se no dk pl cz pt ie nz za',
  ].flatMap((line) => line.split(' ')),
)

/** The maximum length of a role. A longer local part does not have to be normalized. */
const roleLengthMax = 32
const separators = /[._-]/g
const lastSeparator = /[._-](?=[a-z]+$)/
const marks = /\p{M}/gu

/** Whether a local part names a function. Letter case, accents, separators and a `+tag` are ignored. */
export const isRoleName = (localPart: string): boolean => {
  let end = localPart.length
  let plain = true
  for (let at = 0; at < end; at++) {
    const code = localPart.charCodeAt(at)
    if (code >= 97 && code <= 122) continue
    // Roles contain no digits, but many people's local parts do.
    if (code >= 48 && code <= 57) return false
    if (code === 43 && at > 0) end = at
    else plain = false
  }
  if (end > roleLengthMax) return false
  const base = end === localPart.length ? localPart : localPart.slice(0, end)
  return plain ? roleNames.has(base) : isRole(base.toLowerCase().normalize('NFD').replace(marks, ''))
}

const isRole = (name: string): boolean => {
  if (roleNames.has(name.replace(separators, ''))) return true
  const at = name.search(lastSeparator)
  return (
    at > 0 && qualifiers.has(name.slice(at + 1)) && roleNames.has(name.slice(0, at).replace(separators, ''))
  )
}
