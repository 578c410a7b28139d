package manifest

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/source/crd"
)

// breakFile makes a file invalid.
func (l *looker) breakFile(name string) {
	l.write(name, strings.Replace(svc("a", "10.1.1.1"), "port: 80", "port: 80000", 1))
}

// TestStaleSince checks that the time since which an object is stale survives a restart.
func TestStaleSince(t *testing.T) {
	l := newLooker(t)
	l.write("a.yaml", svc("a", "10.1.1.1"))
	if s := l.rest(); len(s.Stale) > 0 {
		t.Errorf("stale to begin with: %v", s.Stale)
	}
	l.breakFile("a.yaml")
	first := l.rest()
	if len(first.Stale) != 1 || first.Stale[0].Object != "Service default/a" || first.Stale[0].Where != "a.yaml:1" ||
		first.Stale[0].Service != "default/a" || !first.Stale[0].Since.Equal(l.now) {
		t.Fatalf("stale: %+v, want a of a.yaml:1 since %s", first.Stale, l.now)
	}
	for range 3 {
		l.now = l.now.Add(time.Hour)
		l.restart()
		s := l.rest()
		wantVIPs(t, s, "a=10.1.1.1")
		wantProblems(t, s, "a.yaml:4: Service default/a: spec.ports[0].port: 80000 is out of range")
		if len(s.Stale) != 1 || s.Stale[0] != first.Stale[0] {
			t.Errorf("stale: %+v, want %+v", s.Stale, first.Stale)
		}
	}
	l.write("a.yaml", svc("a", "10.1.1.2"))
	s := l.rest()
	wantVIPs(t, s, "a=10.1.1.2")
	if len(s.Stale) > 0 {
		t.Errorf("stale: %+v", s.Stale)
	}
}

// TestRemovedWhileDown checks that a file deleted while no agent runs is gone, whatever
// state is saved, and does not return if another file gets its name.
func TestRemovedWhileDown(t *testing.T) {
	l := newLooker(t)
	l.write("a.yaml", svc("a", "10.1.1.1"))
	l.write("b.yaml", svc("b", "10.1.1.2"))
	l.rest()
	must(t, os.Remove(filepath.Join(l.dir, "a.yaml")))
	l.restart()
	wantVIPs(t, l.look(0), "b=10.1.1.2")
	l.breakFile("a.yaml")
	wantVIPs(t, l.rest(), "b=10.1.1.2")
	l.restart()
	wantVIPs(t, l.rest(), "b=10.1.1.2")
}

// TestUnreadableAtStart checks that an unreadable file, or a missing directory, is served
// from the saved state.
func TestUnreadableAtStart(t *testing.T) {
	l := newLooker(t)
	l.write("a.yaml", svc("a", "10.1.1.1"))
	l.write("b.yaml", svc("b", "10.1.1.2"))
	l.rest()
	file := filepath.Join(l.dir, "a.yaml")
	must(t, os.Remove(file))
	must(t, os.Symlink(file, file)) // root can read files of any mode
	l.restart()
	s := l.rest()
	wantVIPs(t, s, "a=10.1.1.1 b=10.1.1.2")
	wantProblems(t, s, "a.yaml: cannot be read: ")
	if len(s.Stale) != 1 || s.Stale[0].Object != "Service default/a" {
		t.Errorf("stale: %+v", s.Stale)
	}
	must(t, os.Remove(file))
	l.write("a.yaml", svc("a", "10.1.1.3"))
	wantVIPs(t, l.rest(), "a=10.1.1.3 b=10.1.1.2")

	must(t, os.Rename(l.dir, l.dir+".away"))
	l.restart()
	s = l.look(0)
	wantVIPs(t, s, "a=10.1.1.3 b=10.1.1.2")
	wantProblems(t, s, "the folder is gone; its last state is served on")
	if len(s.Stale) != 2 {
		t.Errorf("stale: %+v", s.Stale)
	}
	must(t, os.Remove(filepath.Join(l.dir+".away", "b.yaml")))
	must(t, os.Rename(l.dir+".away", l.dir))
	s = l.rest()
	wantVIPs(t, s, "a=10.1.1.3")
	wantProblems(t, s)
	if len(s.Stale) > 0 {
		t.Errorf("stale: %+v", s.Stale)
	}
}

// TestDamagedState checks that an unusable state file is reported when it is needed.
func TestDamagedState(t *testing.T) {
	l := newLooker(t)
	l.write("a.yaml", svc("a", "10.1.1.1"))
	l.write("b.yaml", svc("b", "10.1.1.2"))
	l.rest()
	l.state.Close()
	for _, name := range []string{"a.yaml", "b.yaml"} {
		file := filepath.Join(l.state.Path(), "manifests", name+".json")
		text, err := os.ReadFile(file)
		must(t, err)
		must(t, os.WriteFile(file, text[:len(text)/2], 0o600))
	}
	l.breakFile("a.yaml")
	l.begin(l.state.Path())
	s := l.rest()
	wantVIPs(t, s, "b=10.1.1.2")
	wantProblems(t, s, "a.yaml: its last valid configuration cannot be restored: "+filepath.Join(l.state.Path(), "manifests", "a.yaml.json")+": is damaged", "80000 is out of range")
	l.write("a.yaml", svc("a", "10.1.1.1"))
	wantProblems(t, l.rest())
	l.breakFile("a.yaml")
	l.restart()
	wantVIPs(t, l.rest(), "a=10.1.1.1 b=10.1.1.2")
}

// TestOtherFolder checks that the state of one directory is not used for another.
func TestOtherFolder(t *testing.T) {
	l := newLooker(t)
	l.write("a.yaml", svc("a", "10.1.1.1"))
	l.rest()
	l.dir = t.TempDir()
	l.breakFile("a.yaml")
	l.restart()
	wantVIPs(t, l.rest(), "")
}

// TestInUseWhileReplaced checks that an object in use stays in use while its file is
// replaced as editors do, even if another file has it too.
func TestInUseWhileReplaced(t *testing.T) {
	l := newLooker(t)
	l.write("good.yaml", svc("web", "10.1.1.1"))
	wantVIPs(t, l.rest(), "web=10.1.1.1")
	l.write("aaa.yaml", svc("web", "10.1.1.2"))
	wantVIPs(t, l.rest(), "web=10.1.1.1")
	must(t, os.Rename(filepath.Join(l.dir, "good.yaml"), filepath.Join(l.dir, "good.yaml~")))
	wantVIPs(t, l.look(time.Millisecond), "web=10.1.1.1")
	l.write("good.yaml", svc("web", "10.1.1.3"))
	wantVIPs(t, l.rest(), "web=10.1.1.3")
	must(t, os.Remove(filepath.Join(l.dir, "good.yaml")))
	wantVIPs(t, l.look(time.Millisecond), "web=10.1.1.3")
	wantVIPs(t, l.rest(), "web=10.1.1.2")
}

// TestPeersAfterRestart checks that sessions stay up if the manifest of a peer, or of its
// password, is invalid when an agent starts.
func TestPeersAfterRestart(t *testing.T) {
	l := newLooker(t)
	const (
		peer   = "apiVersion: fairlead.io/v1alpha1\nkind: BGPPeer\nmetadata: {name: rack}\nspec: {peerAddress: 10.0.0.109, passwordSecretRef: bgp}\n---\n"
		secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: bgp}\nstringData: {password: hush}\n---\n"
		offer  = "apiVersion: fairlead.io/v1alpha1\nkind: Advertisement\nmetadata: {name: all}\nspec: {localPreference: 200}\n"
	)
	var peers []crd.Peer
	listen := func() {
		l.d.routing.onPeers = func(all []crd.Peer) []problem.Problem { peers = all; return nil }
	}
	listen()
	l.write("bgp.yaml", peer+secret+offer)
	l.write("a.yaml", svc("a", "10.1.1.1"))
	l.rest()
	want := slices.Clone(peers)
	if len(want) != 1 || want[0].Password != "hush" {
		t.Fatalf("peers %+v", want)
	}
	for _, text := range []string{
		strings.Replace(peer, "10.0.0.109", "rack1", 1) + secret + offer, peer + strings.Replace(secret, "hush", "", 1) + offer,
		peer + secret + strings.Replace(offer, "200", "many", 1), "not: [YAML",
	} {
		l.write("bgp.yaml", text)
		peers = nil
		l.restart()
		listen()
		s := l.rest()
		offers, why := s.Advertisements.Offers(s.Services[0], netip.MustParseAddr("10.1.1.1"))
		if !slices.Equal(peers, want) || len(offers) != 1 || offers[0].LocalPreference != 200 || len(s.Stale) == 0 {
			t.Errorf("%s: peers %+v, offers %+v (%s), stale %v", text, peers, offers, why, s.Stale)
		}
	}
}
