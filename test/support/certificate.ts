import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** A second throw-away certificate for the name `pinned.test`, with a different key. It is self-signed. */
export const renewedCertificate = {
  cert: `-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUQ6CI8ppJLMMgY+Lsftufdwi0dRYwCgYIKoZIzj0EAwIw
FjEUMBIGA1UEAwwLcGlubmVkLnRlc3QwIBcNMjYxMTIyMTE0OTU5WhgPMjEyNjEw
MjkxMTQ5NTlaMBYxFDASBgNVBAMMC3Bpbm5lZC50ZXN0MFkwEwYHKoZIzj0CAQYI
KoZIzj0DAQcDQgAEeQUgfLjRIP3g0NJb5JUjboHXTv2hqvn9DaQFwb8bck4sLSNQ
9iDNYt5ZxRZlFs5mlGoyiog90PRFBXr42pNw5KNrMGkwHQYDVR0OBBYEFNvkSgwX
088x9OIMp4RjGod2shHNMB8GA1UdIwQYMBaAFNvkSgwX088x9OIMp4RjGod2shHN
MA8GA1UdEwEB/wQFMAMBAf8wFgYDVR0RBA8wDYILcGlubmVkLnRlc3QwCgYIKoZI
zj0EAwIDRwAwRAIgVPe8B1YxLKrp8SPYbSw2SHmvmkXF+kalVZPAH74HoLUCIG4H
3zifcscf/+B4UIjsfo45orL3WDV0Ki0PiDb2/LzK
-----END CERTIFICATE-----`,
  key: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgA1HOVBD2Hj8KR1Mh
IXkNct+dX9pSCfh6k1/x4J8AJPmhRANCAAR5BSB8uNEg/eDQ0lvklSNugddO/aGq
+f0NpAXBvxtyTiwtI1D2IM1i3lnFFmUWzmaUajKKiD3Q9EUFevjak3Dk
-----END PRIVATE KEY-----`,
}

export type CertificateFiles = {
  /** The environment variables with the paths of the files. */
  readonly variables: { readonly TLS_CERT: string; readonly TLS_KEY: string }
  /** Renames new files into place, as certificate renewal tools do. */
  replace(files: { readonly cert?: string; readonly key?: string }): Promise<void>
  remove(): Promise<void>
}

export const certificateFiles = async (files: { cert: string; key: string }): Promise<CertificateFiles> => {
  const directory = await mkdtemp(join(tmpdir(), 'certificate-'))
  const variables = { TLS_CERT: join(directory, 'cert.pem'), TLS_KEY: join(directory, 'key.pem') }
  const put = async (path: string, text: string | undefined): Promise<void> => {
    if (text === undefined) return
    await writeFile(`${path}.new`, text)
    await rename(`${path}.new`, path)
  }
  const replace: CertificateFiles['replace'] = async ({ cert, key }) => {
    await put(variables.TLS_CERT, cert)
    await put(variables.TLS_KEY, key)
  }
  await replace(files)
  return { variables, replace, remove: () => rm(directory, { recursive: true, force: true }) }
}
