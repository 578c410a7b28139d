package vdn

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
)

// TestNoneIsLostAndNoneDouble makes 500 attachments with 8 clients, while the controller
// is killed several times.
func TestNoneIsLostAndNoneDouble(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "fairlead")
	if err := testkit.Build(binary); err != nil {
		t.Fatal(err)
	}
	r, err := Attachments(t.Context(), Options{Binary: binary, Attachments: 500, Clients: 8, Kills: 4, Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if r.Attachments != 500 || r.Double != 0 || r.Lost != 0 || r.Kills != 4 || r.Retries == 0 {
		t.Errorf("%+v", r)
	}
}

// TestWhatIsDoubleOrLostIsFound checks that judge detects errors.
func TestWhatIsDoubleOrLostIsFound(t *testing.T) {
	at := func(id, address string, phase vdn.AttachmentPhase) vdn.Attachment {
		return vdn.Attachment{ID: id, Phase: phase, Addresses: []netip.Prefix{netip.MustParsePrefix(address)}}
	}
	granted := []vdn.Attachment{at("a", "10.0.0.1/24", vdn.Leased), at("b", "10.0.0.1/24", vdn.Leased), at("c", "10.0.0.3/24", vdn.Leased), at("d", "10.0.0.4/24", vdn.Leased), at("e", "10.0.0.5/24", vdn.Leased)}
	stored := []vdn.Attachment{at("a", "10.0.0.1/24", vdn.Up), at("c", "10.0.0.9/24", vdn.Up), at("d", "10.0.0.4/24", vdn.Leased), at("e", "10.0.0.5/24", vdn.Up)}
	if double, lost := judge(granted, stored); double != 2 || lost != 3 {
		t.Errorf("%d double, %d lost; want 2 (a and b, b and a again), and 3 (b, c and d)", double, lost)
	}
}
