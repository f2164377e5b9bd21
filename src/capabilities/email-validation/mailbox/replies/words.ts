/**
 * Patterns for the meaning of a reply, in the languages that servers use: English, German, French, Spanish, Portuguese, Italian, Polish,
 * Russian, Chinese and Japanese. They are applied to the text that `classify.ts` prepares. Pure.
 *
 * A noun and its predicate must be close together, without words about another subject between them.
 */

/** Nouns for a mailbox. Nouns for anything else that can be closed, such as a message or a company, are not included. */
const closable = [
  'anaddress|users?|useraccount|username|mail ?box(?:es)?|mbox|inbox|rec[ie]{1,2}pients?|receipients?|rcpt|accounts?|address(?:es)?|addressees?|alias|mail user',
  '(?:be)?nutzer(?:konto)?|empf(?:ae|a)nger(?:adresse)?|postfach|(?:mail|email)?adresse|konto|teilnehmer',
  'utilisateur|destinataires?|boite|compte|abonne',
  'usuario|persona|destinatario|buzon|cuenta|casilla|direccion|correo',
  'utilizador|conta|endereco|caixa postal|caixa de correio|caixa de entrada',
  'utente|destin|casella|indirizzo|nome',
  'uzytkownik[a-z]*|adresat[a-z]*|odbiorc[a-z]*|skrzynk[a-z]*|konta?|adres[a-z]*',
  'пользовател[а-я]*|получател[а-я]*|адресат[а-я]*|ящик[а-я]*|адрес[а-я]*|аккаунт[а-я]*|запис[а-я]*|абонент[а-я]*',
].join('|')
const mailbox = `${closable}|rcptto|customer|subscriber|person|local ?parts?|e ?mail|member|destination`
/** After a noun for a mailbox, these words mean that the mailbox does not exist. */
const missingAfter = [
  'unknown|unkown|unkonwn|invalid|nonexist[ae]nt|non exist[ae]nt|not ?found|undeliverable|unroutable|unallocated|misspelled',
  '(?:does not|doesnt|dosnt|do not|dont|did not|didnt|no longer|not|no) exists?|dont exists|is not exist|not exists?|isnt here',
  '(?:could not|couldnt|cannot|cant|can not) be found|not (?:a )?(?:valid|known|recogni[sz]ed|listed|present|used|local|in (?:[a-z]{1,12} )?(?:recipient|local|user|address|mailbox) (?:list|table))',
  'have no mail|no longer on server|not here|unrecogni[sz]ed|nosuchuser|unresolvable',
  'not a member|not an active|not a valid [a-z]{1,20}|not a known [a-z]{1,20}|marked as invalid|address error|not ok',
  '(?:ist )?unbekannt[a-z]*|nicht bekannt|existiert nicht|nicht gefunden|nicht vorhanden|ungu(?:e)?ltig|gibt es nicht|nicht verfu(?:e)?gbar',
  'inconnue?s?|nexiste (?:pas|plus)|n existe (?:pas|plus)|inexistante?|introuvable|invalides?|non trouvee?',
  'desconocid[oa]|no existe|inexistente|no (?:ha sido )?encontrad[oa]|invalid[oa]|no (?:es )?valid[oa]',
  'desconhecid[oa]|nao existe|nao encontrad[oa]|nao (?:foi )?localizad[oa]',
  'sconosciut[oa]|non esiste|non trovat[oa]|non (?:e )?valid[oa]|inesistente',
  'nieznan[a-z]*|nie istnieje|nie znalezion[oa]|nieprawidlow[a-z]*|nie odnalezion[oa]',
  'неизвест[а-я]*|не существует|не найден[а-я]*|не зарегистрирован[а-я]*|отсутству[а-я]*|недействител[а-я]*|неверн[а-я]*',
].join('|')
/** Before a noun for a mailbox, these words mean that the mailbox does not exist. */
const missingBefore = [
  'no such|nosuchuser|unresolvable|not an? (?:local|active|valid|known)|unknown|unkown|invalid|unrecogni[sz]ed|nonexist[ae]nt|non exist[ae]nt|illegal|not our|bad|wrong|no valid',
  'unbekannte[a-z]?|ungu(?:e)?ltige[a-z]?|keine? gu(?:e)?ltige[a-z]?|no existe|no hay|nao existe|nao ha|non esiste|nie ma takiego|nie istnieje|nieznany',
  'aucune?|nessuna?|нет такого|не существует|не найден|неизвестн[а-я]*|неверн[а-я]*',
].join('|')
/** "no" and similar words count only directly before the noun, and only if the noun has no other meaning. */
const denied =
  'no (?:local |valid )?(?:users?|mail ?box|recipients?|account|person|alias|customer|address)(?: (?:here|by|with|exists|found|at|of|on|named|available)) |no mail ?box $|no one at this address |no such id |[a-z]{0,7}notfound |not user of this server |exists that user |no hay nadie con |keine person mit '
/** Excludes words after a noun that change its meaning, as in "user certificate", "mailbox database" and "address format". */
const itself =
  '(?! (?:agent|certificate|class|database|domain|family|format|group|host|key|server|session|store|syntax|system|ticket|type) )'
/** A few words between a noun and its predicate, none of them about the sender or a machine. */
const between =
  '(?: (?:that )?you [a-z]{1,10}(?: [a-z]{1,10})? to(?: reach)?)?(?: (?!(?:senders?|from|domain|host|hostname|server|ip|error|helo|ehlo|client|temporar[a-z]*|may|might|too|verify|verification|return|reverse|amachine) )[^ ]{1,60}){0,5}'

// recheck: the text has at most 2,000 characters (textLengthMax).
const missingNear = new RegExp(` (?:${mailbox})${itself}${between} (?:${missingAfter})(?= )`, 'u')
// recheck: the text has at most 2,000 characters (textLengthMax).
const missingFirst = new RegExp(
  ` (?:${missingBefore})(?: (?!(?:senders?|from|domain|host|server|ip|error|return|reverse|expired|command|client) )[^ ]{1,30}){0,2} (?:${mailbox})(?= )${itself}`,
  'u',
)
const missingDenied = new RegExp(` (?:${denied})`)
const missingAccount =
  // recheck: the text has at most 2,000 characters (textLengthMax).
  / (?:does not|doesnt|do not|dont) have (?:an? |any )?(?:[a-z0-9]{1,30} ){0,3}(?:account|mailbox|inbox) /
const missingCjk = new RegExp(
  [
    '(?:用户|用戶|使用者|收件人|收件者|邮箱|郵箱|信箱|帐号|账号|帳號|账户|地址)[^。]{0,8}(?:不存在|未找到|找不到|无效|無效|未注册|不正确)',
    '(?:无此|無此|没有此|沒有此|不存在的|未知|没有这个)(?:用户|用戶|使用者|收件人|收件者|邮箱|郵箱|信箱|帐号|账号|帳號|地址)',
    '(?:ユーザー?|宛先|アドレス|メールボックス|アカウント|受信者)[^。]{0,12}(?:存在しま|存在しない|見つかりません|不明|無効|登録されていま|ありません)',
  ].join('|'),
)

/** Words that mean "no such mailbox" only together with certain reply codes. */
const unavailable = new RegExp(
  ` (?:${[
    'mail ?box (?:is )?(?:currently )?(?:unavailable|not available)|unavailable mail user',
    'unrout[e]?able address|cannot route|recipient verify failed|user (?:is )?not local|not our (?:user|customer)',
  ].join('|')}) `,
)
const refused = / (?:address rejected|recipient rejected|rejected recipient|recipient refused|rcpt rejected) /
const named = new RegExp(` (?:${mailbox})(?= )${itself}`, 'u')

/** Near a noun for a mailbox, these words mean that the mailbox is closed permanently. */
const closed = [
  'disabled|inactive|inactivated|deactivated|suspended|suspend|closed|expired|locked|frozen|archived|discontinued|terminated|deleted',
  'no longer (?:valid|active|available|accepts? mail|in use)|not activ(?:e|ated)|out of service|receiving disabled|does not receive (?:e ?)?mail|nicht mehr (?:verfugbar|verfuegbar|erreichbar)|blocked due to (?:[a-z]+ ){0,3}inactivity',
  'gesperrt|deaktiviert|stillgelegt|inaktiv|geloscht|geloescht|desactivee?|suspendue?|bloquee?|archivee?|fermee?|inactif',
  'deshabilitad[oa]|desactivad[oa]|suspendid[oa]|bloquead[oa]|inactiv[oa]|desativad[oa]|suspens[oa]|inativ[oa]|desabilitad[oa]',
  'disabilitat[oa]|disattivat[oa]|sospes[oa]|bloccat[oa]|chius[oa]|inattiv[oa]|scadut[oa]',
  'zablokowan[a-z]*|zawieszon[a-z]*|nieaktywn[a-z]*|wylaczon[a-z]*|usuniet[a-z]*',
  'заблокирован[а-я]*|отключен[а-я]*|деактивирован[а-я]*|неактив[а-я]*|удален[а-я]*|приостановлен[а-я]*',
].join('|')
/** A mailbox that is closed to some senders, or for a while, does not count as closed. */
// recheck: the text has at most 2,000 characters (textLengthMax).
const closedNear = new RegExp(
  ` (?:${closable})${itself}${between} (?:${closed})(?= )(?! (?:to|until|while|during) )`,
  'u',
)
const closedFirst =
  / (?:disabled|inactive|deactivated|suspended) (?:[a-z]{1,20} ){0,1}(?:users?|mail ?box|recipients?|accounts?|address) /
const closedCjk =
  /(?:用户|邮箱|帐号|账号|帳號|アカウント|アドレス|メールボックス)[^。]{0,8}(?:停用|禁用|冻结|凍結|注销|锁定|停止|休止|解約)/
const closedAlone =
  / is now disabled | is no longer valid | mail receiving disabled | account is unavailable /

// recheck: the text has at most 2,000 characters (textLengthMax).
const full = new RegExp(
  ` (?:${[
    '(?:over|exceed(?:s|ed|ing)?|reached|out of) (?:[^ ]{1,30} ){0,4}(?:quota|quote|storage|disk space|space limit|local limit)|overquota|over ?quota|quota (?:[^ ]{1,20} ){0,2}(?:exceed|over|full|violation|reached)[a-z]*',
    '(?:mail ?box|inbox|account|mailfolder|maildir|recipient|user)(?: [^ ]{1,40}){0,4} (?:full|overquota|exceeded (?:the|its) (?:size|limit|storage)|size limit exceeded)|(?:mail ?box|inbox) (?:[^ ]{1,40} ){0,3}limit exe*c?ee?ded',
    'full mail ?box|(?:extended )?quota violation|storage (?:is )?(?:full|exceeded|limit|quota)|exceeded (?:the )?storage|exceeds storage|exceeds? (?:the )?(?:mail ?box|storage) (?:size|quota|limit)?',
    'out of (?:storage|disk)? ?space|(?:not enough|have enough|insufficient|no) (?:storage |mail ?box )*space|space (?:has been|has|is) used up|allowed storage space|disk quota|disk full|too many messages (?:on|in)|too much mail data|recipient storage full',
    'postfach (?:ist )?(?:voll|uberfullt|ueberfuellt)|mailbox voll|speichervolumen|speicherplatz|zu ?viele mails|quota uberschritten|quota ueberschritten',
    'pleine?|quota depasse|saturee?|espace insuffisant|llen[oa]|cuota (?:ha sido )?(?:excedida|superada)|sin espacio|cheia|lotad[oa]|cota excedida|sem espaco',
    'pien[oa]|quota superata|spazio esaurito|przepeln[a-z]*|przekroczon[a-z]* (?:limit|pojemnosc|quota|rozmiar)[a-z]*',
    'переполнен[а-я]*|превышен[а-я]* (?:квот[а-я]*|лимит[а-я]* (?:ящик|почтов)[а-я]*)|квот[а-я]* превышен[а-я]*|нет места',
  ].join('|')}) `,
  'u',
)
const fullCjk =
  /(?:已满|已滿|空间不足|空間不足|容量[已不]|超过配额|邮箱满|いっぱい|満杯|容量[がを](?:超|不足))/
/** Quotas and sizes of something other than a mailbox. */
const otherLimit =
  / (?:mail system|(?:system|server) (?:disk|storage)|spool|file ?system|partition|per (?:second|minute|hour|day)|sending|send|outgoing|submission|queue|message size|mail ?size|messages? (?:is )?too (?:large|big)|maximum message|rate) (?:limit|quota|exceed|volume|than|size)?/

/** The mailbox exists, but receives too much mail at the moment. */
const busy =
  / (?:receiving mail (?:at a rate|too quickly)|messages? (?:they|it|he) can receive|message receive limit|exceeded (?:message rate|(?:their|its) limit for the number)|excessive volume) /

/** Words about the client's address, name, rate or reputation, or about the sender. */
// recheck: the text has at most 2,000 characters (textLengthMax).
const client = new RegExp(
  ` (?:${[
    'ip|ips|ipv[46]|ip address|client host|connecting|blacklist(?:s|ed|ing)?|black ?list(?:ed|s)?|black ip|block ?list(?:s|ed|ing)?|deny ?list(?:ed)?|dnsbls?|rbls?|sbl|xbl|pbl|dbl|sbrs|rdns|ptr|helo|ehlo|reverse dns|reverse lookup|reverse ?host[a-z]*|dns mx',
    '(?<! not )listed (?:at|in|by|on)|is listed|spamhaus|spamcop|sorbs|uceprotect|barracuda[a-z]*|abusix|cloudmark|invaluement|senderscore|senderbase|sophos',
    'blocked (?:using|by|for|at)|banned|reputation|spammers?|dynamic|dialup|your (?:host|server|network|domain|address|mail server|isp|access|location|account)|host lookup',
    'spf|dkim|dmarc|unauthenticated|authenticat[a-z]*|auth|log ?in|smtp auth|starttls|tls|encrypt[a-z]*|credentials',
    'relay(?:ing|s)? (?:is |mail |access |of mail )*(?:denied|not|prohibited|disallowed|disabled|forbidden|traffic|msg)|(?:unable|not permitted|configured|permitted|authori[sz]ed|allowed) to relay|not (?:a )?relay|no longer relays?|as a relay|relaying|we do not relay|rcpthosts|open relay',
    'too (?:many|much|fast)|frequency|rate ?limit(?:s|ed|ing)?|throttl[a-z]*|connections?|limit reached|limit (?:is|was|has been) reached|maximum|max|emails per hour|receive limit|sent too|concurrent|slow down|per hour this',
    '(?:postmaster|callback|callout|address) verification|verification (?:failed|failure)|verify failed while|callouts?|call ?backs?|rfcs? state|senders?|originators?|return address|sending (?:host|server|domain|customer|users?|account)|you are (?:not|an?)|you (?:are |have )?(?:send|sent|sending) from|your from|from (?:header|field|line)|mail ?from|from address(?:es)?|envelope from|from domain|valid from|return path|in from|null sender|empty (?:envelope|email|e mail|from|return)|spoof[a-z]*|backscatter|badsendermx|purported|non member|not member|unsubscribed|gr[ae]y ?list[a-z]*|forged|badmailfrom|anti spoofing',
    'mail address invalid|sending limit|(?:sending|submission) quota|outgoing|message sending|daily (?:sending )?limit',
    'go away|open proxy|mass mailer|bulk|captcha|spam[a-z]*|junk ?mail|junk|virus|unsolicited|ube|antispam|abuse|malware|phish[a-z]*',
    'absender|sperrliste|emetteur|expediteur|connexions|remitente|lista negra|remetente|mittente|lista nera|nadawc[a-z]*|czarn[a-z]* list[a-z]*',
    'отправител[а-я]*|черн[а-я]* спис[а-я]*|спам[а-я]*|чорн[а-я]* спис[а-я]*',
  ].join('|')}) `,
  'u',
)
const clientCjk =
  /(?:频率|頻率|黑名单|黑名單|垃圾|发件人|發件人|发信|送信者|送信元|迷惑メール|ブラックリスト|拒否されました)/

/** NetEase's codes, such as RP:TRC, are about the client or the message. */
const neteaseClient = /^ (?:rp|mi|dt|hl) [a-z]{3} /

/** Words for a policy, which can be the server's or the mailbox owner's. */
// recheck: the text has at most 2,000 characters (textLengthMax).
const policy = new RegExp(
  ` (?:${[
    'polic(?:y|ies)|local policy|access (?:is |was )?(?:denied|rejected|refused|forbidden)|denied by|permission denied|prohibit[a-z]*|prohibition|forbidden|forbided|administrative(?:ly)? (?:prohibit|denied)[a-z]*|unauthori[sz]ed',
    'not (?:permitted|allowed|authori[sz]ed|accepted|accept|yet(?! active))|no permit|no access|restrict[a-z]*|preferences|doesnt want|does not want|blocked(?! due to (?:[a-z]{1,20} ){0,3}inactivity)|blocking|block (?:rcpt|send)[a-z ]{0,3}|only accepting|denied|refused|refus[eé]|rejete|rejected by|reject',
    '(?:e ?mail|mail|message|session|content|envelope|data|connection|delivery) (?:[^ ]{1,40} ){0,2}(?:rejected|refused|declined|filtered|blocked|denied|not allowed|bounced)',
    'gateway|firewall|countr(?:y|ies)|suspicious|suspected|verification failed|verify failed|call ?(?:out|back)s?|bounces?|dsns?|filter(?:ed|s)?|content',
    'no domain|domain not found|dont handle|does not handle|local user only|local host|rule imposed|quarantin[a-z]*',
    'rechazad[oa]|recusad[oa]|rejeitad[oa]|rifiutat[oa]|odrzucon[oa]|abgelehnt|abgewiesen|verweigert|отклонен[а-я]*|отказано',
  ].join('|')}) `,
  'u',
)

/** Words for something temporary, or for a problem of the server. */
// recheck: the text has at most 2,000 characters (textLengthMax).
const passing = new RegExp(
  ` (?:${[
    'or (?:the )?(?:access|permission)|or (?:is )?(?:denied|blocked|not allowed)|temporar[a-z]*|try (?:it )?(?:again )?later|again later|later|timed out|time ?out|deferred|retry|try again (?:in|after|tomorrow)|try again slower|please try again $|tomorrow|(?:resend|send it again) in',
    '(?:system|internal|server|backend|database|directory|ldap|configuration|processing|config) (?:server )?(?:error|failure)|lookup (?:error|failure|failed)|unknown error|local error',
    '(?:service|server|system|backend|database|directory|ldap) (?:is |currently |temporarily )*(?:unavailable|unreachable|down|busy|not available)',
    '(?:unable to|can ?not|cant|could ?no?t|couldnt) (?:be )?verif(?:y|ied)|verification problem|mail ?box (?:busy|in use)|may not exist|might be disabled',
    'maintenance|migrat(?:ed|ing|ion)|being (?:moved|converted|rebuilt|restored|upgraded|migrated)|backup|offline|(?:right|for) now|at the moment|(?:not|un) ?reachable|by another (?:process|session|client)',
    'wartung[a-z]*|manutencao|mantenimiento|manutenzione|przerw[a-z]* technicz[a-z]*|техническ[а-я]* работ[а-я]*|обслуживан[а-я]*|reessayez|intente',
    'vorubergehend|voruebergehend|spater|spaeter|plus tard|temporairement|mas tarde|temporal(?:mente)?|mais tarde|piu tardi|temporane[a-z]*|pozniej|tymczasow[a-z]*|позже|временн[а-я]*',
  ].join('|')}) `,
  'u',
)
const passingCjk = /(?:维护|維護|メンテナンス|稍后|稍後|临时|臨時|暂时|暫時|一時的|しばらく|後ほど)/

const greylist = / (?:gr[ae]y ?list[a-z]*|unverified address|first (?:time|attempt|contact)) /
const comeBack = / (?:try (?:it )?again|retry|come back|later|deferred|delayed|please wait|later please) /

/** Words about a route, another server, a command or the form of an address. They show that the server did not check the mailbox. */
const elsewhere = new RegExp(
  ` (?:${[
    '(?:mail )?loops? (?:back|detected)|(?:routing|mail) loops?|hop count|many hops|recursion|mx problem|null mx|primary mx|another exchanger|next hop',
    'name service error|domain not found|(?:host|domain) (?:was |is )?not found|connection refused|refused to talk|nonexistent domain|destination (?:system|host|domain)',
    'inbound (?:[a-z]{1,20} ){0,2}(?:is )?disabled|(?:unknown|invalid|bad) command|command (?:unknown|unrecogni[sz]ed|rejected)',
    'syntax|malformed|(?:invalid|illegal|bad) (?:character|format)|(?:address|recipient) format|percent sign',
  ].join('|')}) `,
)

const said = {
  missing: [missingNear, missingFirst, missingDenied, missingAccount, missingCjk],
  unavailable: [unavailable],
  refused: [refused],
  named: [named],
  closed: [closedNear, closedFirst, closedCjk, closedAlone],
  full: [full, fullCjk],
  other_limit: [otherLimit],
  busy: [busy],
  client: [client, clientCjk, neteaseClient],
  policy: [policy],
  passing: [passing, passingCjk],
  greylist: [greylist],
  come_back: [comeBack],
  elsewhere: [elsewhere],
  verified_elsewhere: [/ undeliverable address /],
  edge_blocking: [/ recipient address rejected access denied /],
  foreign: [
    / (?:domain|hosts?|client|command|messages?|loops?|looping|mailing list|members?|subscribed|queue|proxy|misconfigured|loop|qualified|priority|refuses|interrupted|output file|drd|verification|confirm|access|agent) /,
  ],
} satisfies Record<string, readonly RegExp[]>

export type Sense = keyof typeof said

/** Whether a string, prepared by `textOf`, has the given meaning. */
export const says = (text: string, sense: Sense): boolean => said[sense].some((words) => words.test(text))
