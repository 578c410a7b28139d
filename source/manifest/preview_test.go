package manifest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/statedir"
	"github.com/fairlead/fairlead/source"
)

// TestPreviewIsWhatFollows previews changes of the folder and then makes them: the result is
// the same, and a preview changes nothing.
func TestPreviewIsWhatFollows(t *testing.T) {
	l := newLooker(t)
	l.write("web.yaml", base)
	l.write("other.yaml", strings.NewReplacer("name: web", "name: other", "10.1.1.1", "10.1.1.2").Replace(strings.Split(base, "---")[0]))
	l.rest()
	for _, c := range []struct {
		name  string
		texts Texts
		whole bool
	}{
		{"nothing", Texts{}, false},
		{"a change", Texts{"web.yaml": []byte(strings.Replace(base, "10.1.1.1", "10.1.1.3", 1))}, false},
		{"a rejected change", Texts{"web.yaml": []byte(strings.Replace(base, "port: 80\n", "port: 99999\n", 1))}, false},
		{"a text that is not YAML", Texts{"web.yaml": []byte("a: [")}, false},
		{"a new file", Texts{"new.yaml": []byte(strings.NewReplacer("name: web", "name: new", "10.1.1.1", "10.1.1.4").Replace(base))}, false},
		{"without a file", Texts{"web.yaml": []byte(base)}, true},
		{"an empty folder", Texts{}, true},
	} {
		before := l.snapshot()
		got := l.d.with(c.texts, c.whole).snapshot()
		if now := l.snapshot(); !now.Equal(before) {
			t.Fatalf("%s: the preview changed %+v to %+v", c.name, before, now)
		}
		for name, text := range c.texts {
			l.write(name, string(text))
		}
		if c.whole {
			for name := range l.d.files {
				if _, stays := c.texts[name]; !stays {
					if err := os.Remove(filepath.Join(l.dir, name)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		l.rest()
		l.look(time.Second)
		want := l.look(time.Minute)      // missing files are dropped
		got.Stale, want.Stale = nil, nil // times differ
		if !reflect.DeepEqual(got.Services, want.Services) || !reflect.DeepEqual(got.Problems, want.Problems) {
			t.Errorf("%s: previewed %+v, then there is %+v", c.name, got, want)
		}
	}
}

// TestPreviewWhileRunning previews while the source reads and saves.
func TestPreviewWhileRunning(t *testing.T) {
	dir := t.TempDir()
	s := New(dir, slog.New(slog.DiscardHandler))
	if _, err := s.Preview(Texts{}, true); err == nil {
		t.Error("a preview before the folder is read")
	}
	state := statedir.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	defer state.Close()
	s.Persist(state)
	ctx, stop := context.WithCancel(t.Context())
	published, done := make(chan int, 100), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(s source.Snapshot) { published <- len(s.Services) }) }()
	<-published
	for i := range 20 {
		text := []byte(strings.Replace(base, "10.1.1.1", fmt.Sprintf("10.1.1.%d", i+1), 1))
		if err := os.WriteFile(filepath.Join(dir, "web.yaml"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if got, err := s.Preview(Texts{"web.yaml": text}, true); err != nil || len(got.Services) != 1 {
				t.Errorf("%+v, %v", got, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
