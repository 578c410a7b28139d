package journal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/lab/testkit"
)

func open(t *testing.T, path string) *Journal {
	t.Helper()
	j := Open(Config{Path: path, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(j.Close)
	return j
}

func peer(of event.Type, name string) event.Event {
	return event.Event{Type: of, Object: event.Object{Kind: "BGPPeer", Name: name}, Cause: "cut"}
}

// listed returns the types, objects and counts.
func listed(j *Journal) (all []string) {
	for _, e := range j.Events(event.Query{}) {
		all = append(all, fmt.Sprintf("%s %s x%d", e.Type, e.Object.Name, e.Count))
	}
	return all
}

// await waits until the journal lists what is wanted.
func await(t *testing.T, j *Journal, want ...string) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() error {
		if got := listed(j); !slices.Equal(got, want) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
}

func TestSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	j := open(t, path)
	for range 3 {
		j.Record(peer(event.PeerDown, "tor-1"))
	}
	j.Record(peer(event.PeerEstablished, "tor-1"))
	want := []string{"PeerDown tor-1 x3", "PeerEstablished tor-1 x1"}
	await(t, j, want...)
	before := j.Events(event.Query{})
	j.Close()
	j = open(t, path)
	after := j.Events(event.Query{})
	for i := range before {
		if !before[i].Time.Equal(after[i].Time) || before[i].ID != after[i].ID {
			t.Errorf("%+v is after a restart %+v", before[i], after[i])
		}
	}
	await(t, j, want...)
	j.Record(peer(event.PeerDown, "tor-1"))
	await(t, j, "PeerEstablished tor-1 x1", "PeerDown tor-1 x4")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// TestIsStoredWithoutClose reads what a killed agent has stored.
func TestIsStoredWithoutClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	j := open(t, path)
	for i := range 3 { // the first creates the file, the others append to it
		j.Record(peer(event.PeerDown, fmt.Sprint("tor-", i)))
		testkit.Eventually(t, 10*time.Second, func() error {
			if text, _ := os.ReadFile(path); strings.Count(string(text), "\n") <= i {
				return fmt.Errorf("only %q is stored", text)
			}
			return nil
		})
	}
	await(t, open(t, path), "PeerDown tor-0 x1", "PeerDown tor-1 x1", "PeerDown tor-2 x1")
}

// TestTornLine ignores a line that was not written completely.
func TestTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	j := open(t, path)
	j.Record(peer(event.PeerDown, "tor-1"))
	j.Record(peer(event.PeerDown, "tor-2"))
	await(t, j, "PeerDown tor-1 x1", "PeerDown tor-2 x1")
	j.Close()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, text[:len(text)-20], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	j = open(t, path)
	await(t, j, "PeerDown tor-1 x1")
	j.Record(peer(event.PeerDown, "tor-3"))
	await(t, j, "PeerDown tor-1 x1", "PeerDown tor-3 x1")
	j.Close()
	await(t, open(t, path), "PeerDown tor-1 x1", "PeerDown tor-3 x1")
}

// TestFileIsBounded appends for a long time: the file stays below its limit and has the latest
// events.
func TestFileIsBounded(t *testing.T) {
	f := file{path: filepath.Join(t.TempDir(), FileName), most: 10_000}
	l := event.List{MaxEvents: 12}
	all := func() []event.Event { return l.All(event.Query{}) }
	for i := range 500 {
		e := peer(event.PeerDown, fmt.Sprint("tor-", i))
		e.Time = time.Unix(int64(i), 0)
		if err := f.append([]event.Event{l.Add(e)}, all); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(f.path); err != nil || info.Size() > f.most+1000 {
			t.Fatalf("%v, %v", info, err)
		}
	}
	var last event.Event
	if err := f.load(func(e event.Event) { last = e }); err != nil || last.Object.Name != "tor-499" {
		t.Errorf("%+v, %v", last, err)
	}
}

// TestUnusableFile still lists events, and says that they are not stored.
func TestUnusableFile(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "none", FileName))
	j.Record(peer(event.PeerDown, "tor-1"))
	await(t, j, "PeerDown tor-1 x1")
	testkit.Eventually(t, 10*time.Second, func() error {
		if err := j.Problem(); err == nil || !strings.HasPrefix(err.Error(), "events are not stored: ") {
			return fmt.Errorf("problem %v", err)
		}
		return nil
	})
}

// TestRecordNeverWaits records more than fits while nothing is processed: the rest is counted.
func TestRecordNeverWaits(t *testing.T) {
	j := &Journal{queue: make(chan event.Event, 2), readers: map[*Reader]bool{}, dirty: map[uint64]bool{}}
	for i := range 10 {
		j.Record(peer(event.PeerDown, fmt.Sprint("tor-", i)))
	}
	j.drain()
	want := []string{"PeerDown tor-0 x1", "PeerDown tor-1 x1", string(event.EventsDropped) + "  x8"}
	if got := listed(j); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	(*Journal)(nil).Record(peer(event.PeerDown, "tor-1"))
}

func TestReaders(t *testing.T) {
	j := open(t, "")
	j.Record(peer(event.PeerDown, "tor-1"))
	await(t, j, "PeerDown tor-1 x1")
	past, r, err := j.Follow(event.Query{Types: []event.Type{event.PeerDown}})
	if err != nil || len(past) != 1 {
		t.Fatalf("%v, %v", past, err)
	}
	j.Record(peer(event.PeerEstablished, "tor-1"))
	j.Record(peer(event.PeerDown, "tor-1"))
	if e := <-r.C; e.Type != event.PeerDown || e.Count != 2 {
		t.Errorf("read %+v", e)
	}
	for range maxLag + 1 { // r reads nothing, and is ended
		j.mu.Lock()
		j.pass(r, peer(event.PeerDown, "tor-1"))
		j.mu.Unlock()
	}
	for range maxLag {
		<-r.C
	}
	if _, more := <-r.C; more {
		t.Error("a reader that lags is not ended")
	}
	j.Unfollow(r)
	var readers []*Reader
	for range maxReaders {
		_, r, err := j.Follow(event.Query{})
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	if _, _, err := j.Follow(event.Query{}); !errors.Is(err, ErrReaders) {
		t.Errorf("one too many: %v", err)
	}
	j.Unfollow(readers[0])
	if _, more := <-readers[0].C; more {
		t.Error("Unfollow does not end a reader")
	}
	j.Close()
	if _, more := <-readers[1].C; more {
		t.Error("Close does not end readers")
	}
}

// FuzzRead reads any file without failing, and keeps the limits.
func FuzzRead(f *testing.F) {
	e := peer(event.PeerDown, "tor-1")
	e.ID, e.Time = 1, time.Unix(1, 0)
	f.Add(lines([]event.Event{e, e}))
	f.Add([]byte(`{"id":18446744073709551615,"time":"2026-01-02T03:04:05Z","type":"x","count":-5}` + "\n{"))
	f.Add([]byte("\n\n" + strings.Repeat("x", maxLine+5) + "\n{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l := event.List{MaxEvents: 5, MaxBytes: 5000}
		if err := read(bytes.NewReader(text), l.Restore); err != nil {
			t.Fatal(err)
		}
		if l.Len() > 5 || l.Bytes() > 5000 && l.Len() > 1 {
			t.Fatalf("%d events, %d bytes", l.Len(), l.Bytes())
		}
		before := l.All(event.Query{})
		again := event.List{MaxEvents: 5, MaxBytes: 5000}
		if err := read(bytes.NewReader(lines(before)), again.Restore); err != nil || again.Len() != len(before) {
			t.Fatalf("%d of %d are read again: %v", again.Len(), len(before), err)
		}
		if added := l.Add(e); added.ID == 0 {
			t.Fatal("an ID is used up")
		}
	})
}

// TestServices asks again for the Services of a backend that the plan did not have yet.
func TestServices(t *testing.T) {
	var known atomic.Bool
	j := Open(Config{Log: slog.New(slog.DiscardHandler), Services: func(e event.Event) []string {
		if !known.Load() {
			return nil
		}
		return []string{"shop/" + e.Object.Name}
	}})
	t.Cleanup(j.Close)
	j.Record(peer(event.PeerDown, "a"))
	await(t, j, "PeerDown a x1")
	known.Store(true)
	testkit.Eventually(t, 10*time.Second, func() error {
		if len(j.Events(event.Query{Service: "shop/a"})) != 1 {
			return fmt.Errorf("%+v", j.Events(event.Query{}))
		}
		return nil
	})
}
