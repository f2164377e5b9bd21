import { isIP } from 'node:net'

/** Accepts `192.0.2.1`, `192.0.2.1:5353`, `2001:db8::1` and `[2001:db8::1]:5353`. */
export const isServer = (text: string): boolean => {
  const bracketed = /^\[([^\]]+)\](?::(\d{1,5}))?$/.exec(text)
  if (bracketed !== null) return isIP(bracketed[1] ?? '') === 6 && Number(bracketed[2] ?? 53) <= 65_535
  if (isIP(text) !== 0) return true
  const [address = '', port = ''] = text.split(':')
  return (
    text.split(':').length === 2 && isIP(address) === 4 && /^\d{1,5}$/.test(port) && Number(port) <= 65_535
  )
}

export const isCidr = (text: string): boolean => {
  const [address = '', prefix, ...rest] = text.split('/')
  const family = isIP(address)
  if (family === 0 || rest.length > 0) return false
  return prefix === undefined || (/^\d{1,3}$/.test(prefix) && Number(prefix) <= (family === 4 ? 32 : 128))
}

/** Refuses the prefix length 0, with which every caller could choose its own address. */
export const isProxyBlock = (text: string): boolean => isCidr(text) && !/\/0+$/.test(text)
