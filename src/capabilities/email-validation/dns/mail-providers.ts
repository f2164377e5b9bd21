/**
 * The operators of mail exchangers by host name, from their own set-up instructions. If a filtering service (`mimecast`, `proofpoint`, …)
 * receives the mail, the operator of the mailbox is unknown.
 */
const suffixes: Readonly<Record<string, readonly string[]>> = {
  google: ['google.com', 'googlemail.com', 'smtp.goog'],
  microsoft: ['outlook.com', 'hotmail.com', 'office365.us', 'outlook.cn', 'outlook.de', 'mx.microsoft'],
  yahoo: ['yahoodns.net'],
  yahoo_japan: ['yahoo.co.jp'],
  apple: ['icloud.com', 'me.com', 'apple.com'],
  zoho: [
    'zoho.com',
    'zoho.eu',
    'zoho.in',
    'zoho.com.au',
    'zoho.jp',
    'zoho.com.cn',
    'zoho.sa',
    'zohocloud.ca',
  ],
  proton: ['protonmail.ch', 'proton.ch', 'proton.me'],
  fastmail: ['messagingengine.com'],
  tuta: ['tutanota.de', 'tutanota.com'],
  mailbox_org: ['mailbox.org'],
  posteo: ['posteo.de'],
  yandex: ['yandex.ru', 'yandex.net', 'yandex.com'],
  mail_ru: ['mail.ru'],
  gmx: ['gmx.net', 'gmx.com', 'web.de', 'mail.com'],
  ionos: [
    'kundenserver.de',
    'ionos.com',
    'ionos.de',
    'ionos.co.uk',
    'ionos.fr',
    'ionos.es',
    'ionos.it',
    '1and1.com',
  ],
  ovh: ['ovh.net', 'ovh.ca', 'ovhcloud.com'],
  gandi: ['gandi.net'],
  strato: ['rzone.de', 'strato.de'],
  t_online: ['t-online.de'],
  orange: ['orange.fr', 'wanadoo.fr'],
  infomaniak: ['infomaniak.ch', 'infomaniak.com'],
  hostinger: ['hostinger.com', 'titan.email'],
  namecheap: ['privateemail.com', 'registrar-servers.com', 'jellyfish.systems'],
  godaddy: ['secureserver.net'],
  rackspace: ['emailsrvr.com'],
  migadu: ['migadu.com'],
  mxroute: ['mxlogin.com', 'mxroute.com'],
  improvmx: ['improvmx.com'],
  forward_email: ['forwardemail.net'],
  cloudflare: ['mx.cloudflare.net'],
  amazon: ['amazonaws.com', 'awsapps.com'],
  mailgun: ['mailgun.org'],
  sendgrid: ['sendgrid.net'],
  mimecast: ['mimecast.com', 'mimecast.co.za', 'mimecast-offshore.com'],
  proofpoint: ['pphosted.com', 'ppe-hosted.com', 'proofpoint.com', 'gpphosted.com'],
  barracuda: ['barracudanetworks.com', 'cudaops.com'],
  cisco: ['iphmx.com'],
  trend_micro: ['trendmicro.com', 'trendmicro.eu', 'trendmicro.co.jp'],
  broadcom: ['messagelabs.com'],
  hornetsecurity: ['hornetsecurity.com', 'antispameurope.com'],
  sophos: ['sophos.com'],
  spamexperts: ['spamexperts.com', 'antispamcloud.com', 'spamexperts.net', 'spamexperts.eu'],
  mailspamprotection: ['mailspamprotection.com'],
  qq: ['qq.com'],
  netease: ['netease.com', '163.com', '126.com', 'qiye.163.com'],
  alibaba: ['mxhichina.com', 'aliyun.com', 'alibaba.com'],
  sina: ['sina.com.cn', 'sina.com', 'sina.net'],
  naver: ['naver.com'],
  docomo: ['docomo.ne.jp'],
  daum: ['daum.net', 'hanmail.net', 'kakao.com'],
  seznam: ['seznam.cz'],
  wp: ['wp.pl'],
  libero: ['libero.it'],
  aruba: ['aruba.it'],
}

const bySuffix: ReadonlyMap<string, string> = new Map(
  Object.entries(suffixes).flatMap(([provider, names]) => names.map((name) => [name, provider] as const)),
)

/** `google`, `microsoft`, …; null if unknown. The host name is ASCII, in lower case, without a final dot. */
export const providerOf = (exchange: string): string | null => {
  for (let at = 0; ; ) {
    const provider = bySuffix.get(exchange.slice(at))
    if (provider !== undefined) return provider
    const dot = exchange.indexOf('.', at)
    if (dot < 0) return null
    at = dot + 1
  }
}
