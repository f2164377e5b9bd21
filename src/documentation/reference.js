// Shows /openapi.json, with forms to make the calls. A key that is entered here is sent only to this host, and is not stored.
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
  // Otherwise, the document would be sent to an external validation service.
  validatorUrl: null,
  persistAuthorization: false,
  queryConfigEnabled: false,
  // Refuses calls to other hosts, even if the OpenAPI document contains their addresses.
  requestInterceptor: async (request) => {
    if (new URL(request.url, window.location.href).origin === window.location.origin) return request
    throw new Error('This page can make calls only to its own host.')
  },
})
