// Shows /openapi.json and makes calls from it. Whatever is typed as a key goes to this host and is kept nowhere.
const dark = window.matchMedia('(prefers-color-scheme: dark)')
const follow = () => document.documentElement.classList.toggle('dark-mode', dark.matches)
dark.addEventListener('change', follow)
follow()

window.SwaggerUIBundle({
  url: '/openapi.json',
  dom_id: '#reference',
  deepLinking: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  // No one else is told what is looked at here.
  validatorUrl: null,
  persistAuthorization: false,
  queryConfigEnabled: false,
  // Whatever the document says.
  requestInterceptor: async (request) => {
    if (new URL(request.url, window.location.href).origin === window.location.origin) return request
    throw new Error('This page makes calls to its own host only.')
  },
})
