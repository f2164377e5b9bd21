/** An HTTP client that acts like a browser without scripts: it stores cookies and submits the dashboard's forms. */
export type Forms = {
  /** Returns a Cookie header with all stored cookies. */
  cookie(): string
  /** Opens a page and submits its form for `path`. Throws unless the answer is a redirect. */
  submit(page: string, path: string, fields: Readonly<Record<string, string>>): Promise<void>
}

export const openForms = (url: string): Forms => {
  const cookies = new Map<string, string>()
  const cookie = (): string => [...cookies].map((pair) => pair.join('=')).join('; ')
  const keep = ({ headers }: Response): void => {
    for (const line of headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
      cookies.set(name, value)
    }
  }
  return {
    cookie,
    submit: async (page, path, fields) => {
      const form = await fetch(`${url}${page}`, { headers: { cookie: cookie() } })
      keep(form)
      const text = await form.text()
      const hidden = ['_csrf', 'once'].map((name) => [
        name,
        new RegExp(`name="${name}" value="([^"]+)"`).exec(text)?.[1] ?? '',
      ])
      const answer = await fetch(`${url}${path}`, {
        method: 'POST',
        redirect: 'manual',
        headers: { cookie: cookie(), 'content-type': 'application/x-www-form-urlencoded' },
        body: new URLSearchParams({ ...Object.fromEntries(hidden), ...fields }),
      })
      keep(answer)
      if (answer.status !== 303) throw new Error(`${path} was answered with ${answer.status}`)
    },
  }
}
