// Package design is the look of all pages and reports: colors and type for light and dark
// themes, and charts that show values under the pointer and on arrow keys. Pages of a server
// load the two assets; Page writes a file that contains them. Nothing is requested from
// elsewhere.
//
// It does without html/template, with which the linker keeps every method of fairlead.
package design

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"math"
	"net/http"
	"path/filepath"
	"strconv"
	"time"
)

// CSS and JS are the assets; JS is a module.
var (
	//go:embed design.css
	CSS []byte
	//go:embed design.js
	JS []byte
)

// Assets serves /design.css and /design.js.
func Assets(mux *http.ServeMux) {
	mux.HandleFunc("GET /design.css", asset(contentTypes[".css"], CSS))
	mux.HandleFunc("GET /design.js", asset(contentTypes[".js"], JS))
}

// Policy is the Content-Security-Policy of pages that load only their own assets.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// Files serves files of a page by their paths.
func Files(mux *http.ServeMux, from fs.FS, files map[string]string) {
	for path, name := range files {
		text, err := fs.ReadFile(from, name)
		if err != nil {
			panic(err) // not embedded
		}
		mux.HandleFunc("GET "+path, asset(contentTypes[filepath.Ext(name)], text))
	}
}

// contentTypes are those of files; package mime would read the machine's.
var contentTypes = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

func asset(contentType string, content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Content-Security-Policy", Policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

// Kinds of charts.
const (
	Lines = "lines" // Series over x
	Area  = "area"  // Series, stacked
	Bars  = "bars"  // Bars, one per row
)

// Chart is what to draw.
type Chart struct {
	Title string `json:"title"`
	Kind  string `json:"kind"`
	X     Axis   `json:"x"`
	Y     Axis   `json:"y"`
	// Height is that of the plot in pixels; 0 is the default. Bars have their own.
	Height int      `json:"height,omitempty"`
	Series []Series `json:"series,omitempty"`
	Bars   []Bar    `json:"bars,omitempty"`
	Events []Event  `json:"events,omitempty"`
	// Group names charts with the same x axis: they show the values of the same moment.
	Group string `json:"group,omitempty"`
}

// Axis describes an axis. Its range follows from the data where it is not set.
type Axis struct {
	Label string   `json:"label,omitempty"`
	Unit  string   `json:"unit,omitempty"`
	Min   *float64 `json:"min,omitempty"`
	Max   *float64 `json:"max,omitempty"`
	// Time means that values are milliseconds since 1970, shown as the time of day.
	Time bool `json:"time,omitempty"`
	// Log is for values that differ by orders of magnitude. The values of a series are
	// then positive.
	Log bool `json:"log,omitempty"`
}

// Series is a line or an area.
type Series struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
	// Dashed is for a line to compare the others with.
	Dashed bool `json:"dashed,omitempty"`
}

// Point is a value at x. NaN is a gap.
type Point struct{ X, Y float64 }

// MarshalJSON returns [x, y].
func (p Point) MarshalJSON() ([]byte, error) {
	b := strconv.AppendFloat([]byte{'['}, p.X, 'f', -1, 64)
	if math.IsNaN(p.Y) || math.IsInf(p.Y, 0) {
		return append(b, ",null]"...), nil
	}
	return append(strconv.AppendFloat(append(b, ','), p.Y, 'f', -1, 64), ']'), nil
}

// Bar is a value with a name, and optionally the value that it should not exceed.
type Bar struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Goal  float64 `json:"goal,omitempty"`
	Note  string  `json:"note,omitempty"`
	Bad   bool    `json:"bad,omitempty"`
}

// Event is what happened at x.
type Event struct {
	At     float64 `json:"at"`
	Name   string  `json:"name"`
	Detail string  `json:"detail,omitempty"`
	Bad    bool    `json:"bad,omitempty"`
}

// Figure returns the HTML of a chart for the body of a Page.
func Figure(c Chart) (string, error) {
	text, err := json.Marshal(c) // escapes <, > and &
	if err != nil {
		return "", fmt.Errorf("chart %q: %w", c.Title, err)
	}
	return fmt.Sprintf("<figure class=\"chart\"><figcaption>%s</figcaption><script type=\"application/json\">%s</script></figure>\n", html.EscapeString(c.Title), text), nil
}

// Page returns a self-contained HTML file. The body is HTML, in which Figures become
// charts; css is added to that of all pages. A button selects the theme.
func Page(title, body, css string) []byte {
	css = string(CSS) + css
	return fmt.Appendf(nil, `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src %s; script-src %s; img-src data:; base-uri 'none'; form-action 'none'">
<title>%s</title>
<style>%s</style>
<body class="report">
%s
<script type="module">%s</script>
</body>
</html>
`, hash(css), hash(string(JS)), html.EscapeString(title), css, body, JS)
}

// hash is how a policy allows an inline element.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
