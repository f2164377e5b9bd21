/** Where a sign-in leads to: the requested page. Pure. */

const lengthMax = 500

/**
 * One of our paths, with its query; `/` for anything else. A link from elsewhere must not redirect people to another site, so
 * a path begins with one slash, and contains nothing that a browser would read as a second slash. The target is only opened with GET.
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
