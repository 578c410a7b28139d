// Package page shows a domain of virtually dedicated networks in a browser: nodes and their
// pods, federated domains, rates and drops, updated every second. It queries /v1/view like
// any other client.
package page

import (
	"embed"
	"net/http"

	"github.com/fairlead/fairlead/internal/design"
)

//go:embed web
var web embed.FS

// Handler serves the page. The page is public; if the controller requires a token, the page
// prompts for it.
func Handler() http.Handler {
	mux := http.NewServeMux()
	design.Assets(mux)
	Assets(mux)
	design.Files(mux, web, map[string]string{"/{$}": "web/page.html", "/page.js": "web/page.js"})
	return mux
}

// Assets serves /networks.js, a module that shows a view, and /networks.css.
func Assets(mux *http.ServeMux) {
	design.Files(mux, web, map[string]string{"/networks.js": "web/networks.js", "/networks.css": "web/networks.css"})
}
