package logging

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// buffer is what was written, by timers, too.
type buffer struct {
	lockedWriter
	bytes.Buffer
}

func newBuffer() *buffer {
	b := &buffer{}
	b.w = &b.Buffer
	return b
}

func (b *buffer) Write(p []byte) (int, error) { return b.lockedWriter.Write(p) }

// lines returns what was written, without times, and empties the buffer.
func (b *buffer) lines() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.Reset()
	return regexp.MustCompile(`time=\S+ `).ReplaceAllString(b.String(), "")
}

// Of equal lines, five are written at once, and from then on one in ten seconds.
func TestEqualLinesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newBuffer()
		log := New(out).Logger().With("peer", "10.0.0.1")
		fail := func(n int, err string) {
			for i := range n {
				log.Warn("failed", "error", errors.New(err), "retryIn", time.Duration(i))
			}
		}
		fail(5, "refused")
		fail(1, "timeout")
		want := strings.Repeat("level=WARN msg=failed peer=10.0.0.1 error=refused retryIn=Xns\n", 5) +
			"level=WARN msg=failed peer=10.0.0.1 error=timeout retryIn=Xns\n"
		measured := regexp.MustCompile(`retryIn=\d*ns|retryIn=0s`)
		got := func() string { synctest.Wait(); return measured.ReplaceAllString(out.lines(), "retryIn=Xns") }
		if diff := cmp.Diff(want, got()); diff != "" {
			t.Error(diff)
		}
		fail(100, "refused")
		if s := got(); s != "" {
			t.Errorf("written at once: %s", s)
		}
		time.Sleep(window)
		if diff := cmp.Diff("level=WARN msg=failed peer=10.0.0.1 error=refused retryIn=Xns repeated=100\n", got()); diff != "" {
			t.Error(diff)
		}
		fail(3, "refused")
		time.Sleep(window)
		if diff := cmp.Diff("level=WARN msg=failed peer=10.0.0.1 error=refused retryIn=Xns repeated=3\n", got()); diff != "" {
			t.Error(diff)
		}
		time.Sleep(window + time.Second) // a quiet window ends the limit
		fail(1, "refused")
		if diff := cmp.Diff("level=WARN msg=failed peer=10.0.0.1 error=refused retryIn=Xns\n", got()); diff != "" {
			t.Error(diff)
		}
		time.Sleep(window)
	})
}

// Lines of other loggers, objects and levels are not equal.
func TestDifferentLinesAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newBuffer()
		l := New(out)
		for i := range 50 {
			l.Logger().With("peer", fmt.Sprint(i)).Info("up")
			l.Logger().Info("up", "peer", fmt.Sprint("b", i))
		}
		if n := strings.Count(out.String(), "\n"); n != 100 {
			t.Errorf("%d lines of 100", n)
		}
		time.Sleep(2 * window)
	})
}

// A process that ends loses no line.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newBuffer()
		l := New(out)
		for range 7 {
			l.Logger().Info("up")
		}
		out.lines()
		l.Flush()
		if got := out.lines(); got != "level=INFO msg=up repeated=2\n" {
			t.Error(got)
		}
		time.Sleep(2 * window)
	})
}

// The format applies to loggers that exist already.
func TestFormat(t *testing.T) {
	out := newBuffer()
	l := New(out)
	log := l.Logger().With("peer", "10.0.0.1").WithGroup("g")
	if err := l.Format().Set("json"); err != nil {
		t.Fatal(err)
	}
	log.Info("up", "as", 1)
	if !strings.Contains(out.String(), `"level":"INFO","msg":"up","peer":"10.0.0.1","g":{"as":1}}`) {
		t.Error(out.String())
	}
	if err := l.Format().Set("xml"); err == nil || l.Format().String() != "json" {
		t.Errorf("format %s, %v", l.Format(), err)
	}
}

// A level for a while ends by itself; the next change replaces it.
func TestLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(&bytes.Buffer{})
		at := func(want slog.Level) {
			t.Helper()
			synctest.Wait()
			if got := l.State().Level; got != want {
				t.Errorf("level %s, want %s", got, want)
			}
		}
		l.SetLevel(slog.LevelWarn, 0)
		l.SetLevel(slog.LevelDebug, time.Minute)
		s := l.SetLevel(slog.LevelInfo, 2*time.Minute)
		if s.Normal != slog.LevelWarn || time.Until(s.Until) != 2*time.Minute {
			t.Errorf("%+v", s)
		}
		time.Sleep(90 * time.Second)
		at(slog.LevelInfo)
		time.Sleep(time.Minute)
		at(slog.LevelWarn)
		l.SetLevel(slog.LevelDebug, time.Minute)
		l.SetLevel(slog.LevelError, 0)
		time.Sleep(time.Hour)
		at(slog.LevelError)
	})
}

// docs/logs.md lists all keys, sorted, with their meanings.
func TestKeysAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	want := "| key | value |\n|---|---|\n"
	for _, key := range slices.Sorted(maps.Keys(Keys)) {
		want += "| `" + key + "` | " + Keys[key] + " |\n"
	}
	if !strings.HasSuffix(string(page), want) {
		t.Errorf("docs/logs.md must end with:\n%s", want)
	}
}

func TestServe(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	l := New(&bytes.Buffer{})
	slog.SetDefault(l.Logger())
	for _, c := range []struct{ method, query, want string }{
		{"GET", "", `{"level":"INFO","normal":"INFO"}`},
		{"POST", "?level=debug", `{"level":"DEBUG","normal":"DEBUG"}`},
		{"POST", "?level=loud", `level: "loud" is none of debug, info, warn and error`},
		{"POST", "?level=warn&for=soon", `for: "soon" is not a duration like 10m`},
		{"GET", "", `{"level":"DEBUG","normal":"DEBUG"}`},
	} {
		w := httptest.NewRecorder()
		Serve(w, httptest.NewRequest(c.method, Path+c.query, http.NoBody))
		if got := strings.TrimSpace(w.Body.String()); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.method, c.query, got, c.want)
		}
	}
}
