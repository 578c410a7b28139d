// Package page shows a domain of virtually dedicated networks in a browser: nodes and their
// pods, federated domains, rates and drops, updated every second. It is a single file that
// queries /v1/view like any other client.
package page

import (
	_ "embed"
	"net/http"
)

//go:embed page.html
var html []byte

// Handler serves the page. The page is public; if the controller requires a token, the page
// prompts for it.
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
