import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pinnedCertificate } from '../egress/pinned-certificate.ts'
import { accepts, freePort, startProcess } from './mail/process.ts'

/** Debian's nginx in front of the service, as a process of the test, on loopback ports. */
export type Nginx = {
  /** nginx with TLS, directly in front of the service. */
  readonly secure: string
  /** nginx without TLS, directly in front of the service. */
  readonly plain: string
  /** nginx with TLS, in front of another nginx, which is in front of the service. */
  readonly twoHops: string
  close(): Promise<void>
}

/** The addresses from which each nginx connects to its upstream. */
export const nearProxy = '127.0.0.9'
export const farProxy = '127.0.0.10'

const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']

export const startNginx = async (upstream: string): Promise<Nginx> => {
  const directory = await mkdtemp(join(tmpdir(), 'nginx-'))
  const [secure, plain, twoHops, between] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ]
  await mkdir(join(directory, 'temporary'))
  await writeFile(join(directory, 'cert.pem'), pinnedCertificate.cert)
  await writeFile(join(directory, 'key.pem'), pinnedCertificate.key)
  const passOn = (to: string, from: string, protocol: string): string => `
    location / {
      proxy_pass ${to};
      proxy_bind ${from};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto ${protocol};
    }`
  const tls = `ssl_certificate ${directory}/cert.pem; ssl_certificate_key ${directory}/key.pem;`
  await writeFile(
    join(directory, 'nginx.conf'),
    `daemon off;
master_process off;
pid ${directory}/nginx.pid;
error_log stderr;
events { worker_connections 256; }
http {
  access_log off;
  ${temporary.map((name) => `${name}_temp_path ${directory}/temporary/${name};`).join('\n  ')}
  server { listen 127.0.0.1:${secure} ssl; ${tls} ${passOn(upstream, nearProxy, '$scheme')} }
  server { listen 127.0.0.1:${plain}; ${passOn(upstream, nearProxy, '$scheme')} }
  server { listen 127.0.0.1:${twoHops} ssl; ${tls} ${passOn(`http://127.0.0.1:${between}`, farProxy, '$scheme')} }
  server { listen 127.0.0.1:${between}; ${passOn(upstream, nearProxy, '$http_x_forwarded_proto')} }
}
`,
  )
  const remove = () => rm(directory, { recursive: true, force: true })
  try {
    const server = await startProcess({
      command: 'nginx',
      args: ['-e', 'stderr', '-p', directory, '-c', join(directory, 'nginx.conf')],
      ready: () => Promise.all([secure, plain, twoHops, between].map((port) => accepts('127.0.0.1', port))),
    })
    return {
      secure: `https://127.0.0.1:${secure}`,
      plain: `http://127.0.0.1:${plain}`,
      twoHops: `https://127.0.0.1:${twoHops}`,
      close: async () => {
        await server.close()
        await remove()
      },
    }
  } catch (error) {
    await remove()
    throw error
  }
}
