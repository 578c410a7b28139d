package design

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/browser"
)

// page returns a file with charts of all kinds, aligned, with many events close together.
func page(t *testing.T) string {
	t.Helper()
	c := Chart{Title: "Rates <b>", Kind: Lines, Group: "load", X: Axis{Label: "time since the start", Unit: "s"}, Y: Axis{Unit: "packets/s"}}
	for i := range 3 {
		s := Series{Name: fmt.Sprintf("</script>web-%d", i)}
		for x := range 41 {
			s.Points = append(s.Points, Point{float64(x), float64(1000*(i+1)) + 200*math.Sin(float64(x))})
		}
		c.Series = append(c.Series, s)
	}
	c.Series[0].Points[5].Y = math.NaN()
	for _, at := range []float64{2, 3, 3.5, 12, 25, 39, 39.5, 40} {
		c.Events = append(c.Events, Event{At: at, Name: fmt.Sprintf("kill-balancer at %g", at), Bad: at == 12, Detail: "converged in 16 ms"})
	}
	stacked := c
	stacked.Title, stacked.Kind = "Stacked", Area
	bars := Chart{Title: "Convergence", Kind: Bars, Y: Axis{Unit: "ms", Log: true}, Bars: []Bar{{Name: "kill-balancer", Value: 15.9, Goal: 100}, {Name: "cut-balancer", Value: 1526, Goal: 1000, Bad: true, Note: "missed"}, {Name: "no change" + strings.Repeat(", and another one", 9), Value: 0.0042}}}
	growth := Chart{Title: "Growth", Kind: Lines, X: Axis{Log: true}, Y: Axis{Log: true, Unit: "ms"}, Series: []Series{
		{Name: "measured", Points: []Point{{1, 0.5}, {10, 6}, {100, 55}, {1000, 800}}}, {Name: "linear", Dashed: true, Points: []Point{{1, 0.5}, {1000, 500}}},
	}}
	body := "<h1>Test</h1><p class=\"verdict\">Passed</p>"
	for _, c := range []Chart{c, stacked, bars, growth, {Title: "Empty", Kind: Lines}} {
		f, err := Figure(c)
		if err != nil {
			t.Fatal(err)
		}
		body += f
	}
	return string(Page("Charts & more", body, ""))
}

func TestPage(t *testing.T) {
	text := page(t)
	for _, want := range []string{"<title>Charts &amp; more</title>", "Rates &lt;b&gt;</figcaption>", `\u003c/script\u003eweb-0`, "[5,null]", `"group":"load"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if n := strings.Count(text, "</script>"); n != 6 {
		t.Errorf("%d scripts end, want five charts and the module", n)
	}
	if strings.Contains(string(JS), "</script") || strings.Contains(string(CSS), "</style") {
		t.Error("the assets end their own element")
	}
}

func TestAssets(t *testing.T) {
	mux := http.NewServeMux()
	Assets(mux)
	for path, kind := range map[string]string{"/design.css": "text/css", "/design.js": "text/javascript"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if h := w.Header(); w.Code != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), kind) || strings.Contains(h.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s: %d, %v", path, w.Code, h)
		}
	}
	if lines := strings.Count(string(JS), "\n"); lines > 500 {
		t.Errorf("the script has %d lines", lines)
	}
}

// overlaps counts the pairs of event labels that overlap each other, or a line of another
// event.
const overlaps = `[...document.querySelectorAll('figure svg')].reduce((n, svg) => {
	const labels = [...svg.querySelectorAll('text.event')].map(e => e.getBoundingClientRect())
	const lines = [...svg.querySelectorAll('line.event')].map(e => e.getBoundingClientRect())
	const hits = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom - 3 && b.top < a.bottom - 3
	labels.forEach((a, i) => labels.forEach((b, j) => { if (i < j && hits(a, b)) n++ }))
	labels.forEach(a => lines.forEach(l => { if (l.left > a.left && l.left < a.right && l.top < a.bottom - 3) n++ }))
	return n
}, 0)`

// growth is the chart with logarithmic axes.
const growth = `document.querySelectorAll('figure')[3]`

// TestCharts draws charts in a browser, without errors and requests, and uses them with
// the pointer and the keyboard.
func TestCharts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(page(t)), 0o644); err != nil {
		t.Fatal(err)
	}
	p := browser.Open(t, "file://"+file, 1000, 1300)
	p.Wait(`document.querySelectorAll('figure svg').length === 4`)
	for expression, want := range map[string]any{
		overlaps: 0.0,
		`document.querySelectorAll('figure:first-of-type text.event').length`: 8.0,
		`document.querySelectorAll('path.area').length`:                       3.0,
		`document.querySelectorAll('rect.bar').length`:                        3.0,
		`document.querySelectorAll('text.value')[2].textContent`:              "0.0042 ms",
		`[...document.querySelectorAll('text.name')].every(t => t.getBBox().x + t.getBBox().width < document.querySelector('rect.bar').x.baseVal.value)`: true,
		`document.querySelectorAll('text.name title').length`: 1.0,
		growth + `.querySelectorAll('path.dashed').length`:    1.0,
		growth + `.querySelectorAll('circle').length`:         4.0,
		// Equal factors are equal distances.
		"[0, 1].map(i => Math.round(" + growth + `.querySelectorAll('circle')[i + 1].cx.baseVal.value - ` + growth + `.querySelectorAll('circle')[i].cx.baseVal.value)).reduce((a, b) => a - b)`: 0.0,
		`[...` + growth + `.querySelectorAll('text')].map(t => t.textContent).join(' ')`:                                                                                                         "0.1 1 10 100 1,000 ms 1 2 5 10 20 50 100 200 500 1k",
		`document.querySelector('.empty').textContent`: "no data yet",
		`new Set([...document.querySelectorAll('line.axis')].filter(l => !` + growth + `.contains(l) && l.y1.baseVal.value === l.y2.baseVal.value).map(l => l.outerHTML.match(/x1="[^"]*" x2="[^"]*"/)[0])).size`: 1.0,
	} {
		if got := p.Eval(expression); got != want {
			t.Errorf("%s is %v, want %v", expression, got, want)
		}
	}
	p.Eval(`document.querySelector('figure svg').focus()`)
	p.Press("Home", "ArrowRight", "ArrowRight")
	for _, want := range []string{"2 s", "1.18k packets/s", "kill-balancer at 2: converged in 16 ms"} {
		if got := fmt.Sprint(p.Eval(`document.querySelector('.values').textContent`)); !strings.Contains(got, want) {
			t.Errorf("the keyboard shows %q, want %q", got, want)
		}
	}
	if shown := p.Eval(`document.querySelectorAll('.values:not([hidden])').length`); shown != 2.0 {
		t.Errorf("%v charts of the group show the moment, want both", shown)
	}
	p.Press("Escape")
	p.Wait(`document.querySelectorAll('.values:not([hidden])').length === 0`)
	p.Eval(`document.querySelector('figure svg').dispatchEvent(new PointerEvent('pointermove', { clientX: 500, bubbles: true }))`)
	p.Wait(`document.querySelectorAll('.values:not([hidden])').length === 2`)
	p.Eval(`document.querySelector('.legend button').click()`)
	p.Wait(`document.querySelector('figure').querySelectorAll('path.series').length === 2`)
	themes(t, p)
	if errors := p.Errors(); len(errors) > 0 {
		t.Errorf("console: %q", errors)
	}
	if rest := slices.DeleteFunc(p.Requests(), func(url string) bool { return url == "file://"+file }); len(rest) > 0 {
		t.Errorf("requests %q", rest)
	}
	if dir := os.Getenv("FAIRLEAD_SCREENSHOT"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "charts.png"), p.Screenshot(), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// themes checks that the page follows the system and the button.
func themes(t *testing.T, p *browser.Page) {
	t.Helper()
	background := `getComputedStyle(document.body).backgroundColor`
	p.Theme("light")
	light := p.Eval(background)
	p.Theme("dark")
	if p.Eval(background) == light {
		t.Error("a dark system has a light page")
	}
	p.Eval(`document.querySelector('button.theme').click()`)
	if got := p.Eval(background); got != light {
		t.Errorf("the theme light of the button has background %v", got)
	}
	p.Eval(`document.querySelector('button.theme').click()`)
	if p.Eval(background) == light {
		t.Error("the theme dark of the button is light")
	}
}
