/** The page that opens after a sign-in. Pure. */

const lengthMax = 500

/**
 * Returns one of our paths with its query, or `/` for any other text. A link must not redirect people to another site, so the path cannot
 * begin with two slashes, or with characters that browsers treat as two slashes.
 */
export const nextOf = (text: string): string => {
  const [path = '', ...rest] = text.split('?')
  const query = rest.join('?')
  const isOurs =
    text.length <= lengthMax &&
    /^(\/[A-Za-z0-9_.-]+)+$/.test(path) &&
    /^[A-Za-z0-9_.~%=&:+-]*$/.test(query) &&
    rest.length <= 1 &&
    path !== '/login'
  return isOurs ? text : '/'
}
