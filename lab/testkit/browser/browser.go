// Package browser runs pages in a headless Chromium for tests: it evaluates JavaScript,
// presses keys, takes screenshots, and records errors and requests. It speaks the DevTools
// protocol, of which it needs few commands.
package browser

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// deadline bounds a command and a Wait; the machine may be busy.
const deadline = time.Minute

// Page is a page in its own browser, which ends with the test.
type Page struct {
	t       *testing.T
	conn    *websocket.Conn
	session string
	id      int

	mu       sync.Mutex
	answers  map[int]chan message
	errors   []string
	requests []string
}

type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Open loads a page in a window of this size. Without Chromium, the test is skipped.
func Open(t *testing.T, url string, width, height int) *Page {
	t.Helper()
	p := &Page{t: t, answers: map[int]chan message{}}
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), start(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p.conn = conn
	go p.read()
	var target struct{ TargetID, SessionID string }
	p.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	p.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	p.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.call(domain+".enable", nil, nil)
	}
	p.Resize(width, height)
	p.call("Page.navigate", map[string]any{"url": url}, nil)
	p.Wait(`document.readyState === 'complete' && location.href !== 'about:blank'`)
	return p
}

// start runs Chromium and returns the address of its DevTools.
func start(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium here: scripts/deps.sh page installs it")
	}
	home := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	c := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--no-proxy-server", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--user-data-dir="+home, "--remote-debugging-port=0", "about:blank")
	c.Env = append(os.Environ(), "HOME="+home)
	c.WaitDelay = 5 * time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	if err := c.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = c.Wait() // killed
		// Its children write to its folder until they are gone, too.
		for end := time.Now().Add(deadline); time.Now().Before(end) && syscall.Kill(-c.Process.Pid, 0) == nil; {
			time.Sleep(10 * time.Millisecond)
		}
	})
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(home, "DevToolsActivePort"))
		if port, path, ok := strings.Cut(strings.TrimSpace(string(text)), "\n"); ok {
			return "ws://127.0.0.1:" + port + path
		}
	}
	t.Fatal("chromium does not start")
	return ""
}

// read passes answers on and records errors and requests, until the connection ends.
func (p *Page) read() {
	for {
		var m message
		if p.conn.ReadJSON(&m) != nil {
			return
		}
		p.mu.Lock()
		if answer := p.answers[m.ID]; answer != nil {
			delete(p.answers, m.ID)
			answer <- m
		} else {
			p.note(m)
		}
		p.mu.Unlock()
	}
}

// note records an event; runs under p.mu.
func (p *Page) note(m message) {
	var e struct {
		Type    string
		Entry   struct{ Level, Text, URL string }
		Request struct{ URL string }
	}
	_ = json.Unmarshal(m.Params, &e) // other events have other fields
	switch {
	case m.Method == "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.URL)
	case m.Method == "Log.entryAdded" && e.Entry.Level == "error":
		p.errors = append(p.errors, e.Entry.Text+" "+e.Entry.URL)
	case m.Method == "Runtime.exceptionThrown", m.Method == "Runtime.consoleAPICalled" && e.Type == "error":
		p.errors = append(p.errors, string(m.Params))
	}
}

// call sends a command and decodes its result.
func (p *Page) call(method string, params, into any) {
	p.t.Helper()
	text, err := json.Marshal(params)
	if err != nil {
		p.t.Fatal(err)
	}
	p.id++
	answer := make(chan message, 1)
	p.mu.Lock()
	p.answers[p.id] = answer
	p.mu.Unlock()
	if err := p.conn.WriteJSON(message{ID: p.id, SessionID: p.session, Method: method, Params: text}); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			p.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if into != nil {
			err = json.Unmarshal(m.Result, into)
		}
	case <-time.After(deadline):
		err = fmt.Errorf("no answer within %s", deadline)
	}
	if err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
}

// Eval returns the value of an expression; it waits for promises.
func (p *Page) Eval(expression string) any {
	p.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	p.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		p.t.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	return r.Result.Value
}

// Wait waits until an expression is true.
func (p *Page) Wait(expression string) {
	p.t.Helper()
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if p.Eval("Boolean("+expression+")") == true {
			return
		}
	}
	p.t.Fatalf("never true: %s\nerrors: %q\n%v", expression, p.Errors(), p.Eval("document.body.innerText.slice(0, 4000)"))
}

// Press presses keys by their names, as in "ArrowDown" or "a".
func (p *Page) Press(keys ...string) {
	p.t.Helper()
	codes := map[string]int{"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, " ": 32}
	for _, key := range keys {
		event := map[string]any{"type": "keyDown", "key": key, "windowsVirtualKeyCode": codes[key]}
		if len(key) == 1 {
			event["text"] = key
		}
		if key == "Enter" {
			event["text"] = "\r"
		}
		p.call("Input.dispatchKeyEvent", event, nil)
		p.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "windowsVirtualKeyCode": codes[key]}, nil)
	}
}

// Resize sets the size of the window.
func (p *Page) Resize(width, height int) {
	p.t.Helper()
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// Theme is what the system prefers: "light" or "dark".
func (p *Page) Theme(name string) {
	p.t.Helper()
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": name}}}, nil)
}

// Screenshot returns the window as PNG.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	var r struct{ Data string }
	p.call("Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}, &r)
	text, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

// Shrink reduces a PNG to 256 colors, the most frequent ones, which is enough for a page
// and a third of the size.
func Shrink(text []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	count, area := map[color.Color]int{}, full.Bounds()
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			count[full.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	small := image.NewPaletted(area, colors[:min(len(colors), 256)])
	draw.Draw(small, area, full, area.Min, draw.Src)
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small)
	return out.Bytes(), err
}

// Errors returns what the console reports, violations of the policy included.
func (p *Page) Errors() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.errors...)
}

// Requests returns the addresses that the page has requested.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.requests...)
}
