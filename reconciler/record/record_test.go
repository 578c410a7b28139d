package record

import (
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/statedir"
)

// TestRecord checks that stored owners are available to the next agent and that a damaged
// file counts as empty.
func TestRecord(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	path := t.TempDir()
	owners := map[service.Key]service.ID{
		{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP}:            {Namespace: "default", Name: "web"},
		{VIP: netip.MustParseAddr("2001:db8::1"), Port: 5, Last: 9, Protocol: service.UDP}: {Namespace: "a", Name: "b"},
		{VIP: netip.MustParseAddr("10.1.1.2"), Last: 65535, Protocol: service.AnyProtocol}: {Namespace: "a", Name: "b"},
	}
	dir := statedir.Open(path, log)
	if c := New(dir, log); len(c.Load()) != 0 {
		t.Errorf("there is %v to begin with", c.Load())
	}
	New(dir, log).Store(owners)
	dir.Close()

	dir = statedir.Open(path, log)
	defer dir.Close()
	if got := New(dir, log).Load(); !maps.Equal(got, owners) {
		t.Errorf("got %v, want %v", got, owners)
	}
	if err := os.WriteFile(filepath.Join(path, "owners", "frontends.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := New(dir, log).Load(); len(got) != 0 {
		t.Errorf("a damaged file gives %v", got)
	}
}
