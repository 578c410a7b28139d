// Package page shows a domain of virtually dedicated networks in a browser: nodes,
// the pods on them, federated domains, rates and drops, anew every second. It is
// one file, which asks the controller for /v1/view as any other does.
package page

import (
	_ "embed"
	"net/http"
)

//go:embed page.html
var html []byte

// Handler serves the page. It holds nothing that is not for everybody; where the
// controller wants a token, the page asks for it.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-cache")
		_, _ = w.Write(html)
	})
}
