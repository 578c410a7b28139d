package networkstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/store"
)

func Network(name, prefix string) vdn.Network {
	return vdn.Network{Name: name, Devices: []string{"eth1", "eth2"}, Subnets: []vdn.Subnet{{CIDR: netip.MustParsePrefix(prefix)}}}
}

func must(t *testing.T, s *store.Store, all ...vdn.Network) {
	t.Helper()
	for _, n := range all {
		if _, err := s.PutNetwork(t.Context(), n, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// Request returns a request of a container on node n1.
func Request(network, container string) vdn.AttachmentRequest {
	return vdn.AttachmentRequest{Network: network, Node: "n1", Container: container, Interface: "net1"}
}

func attach(t *testing.T, s *store.Store, r vdn.AttachmentRequest) vdn.Attachment {
	t.Helper()
	l, _, err := s.Attach(t.Context(), r, 1)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attachment
}

// rejected checks that an error has this kind and contains want.
func rejected(t *testing.T, err error, kind vdn.Kind, want string) {
	t.Helper()
	if got, ok := vdn.KindOf(err); !ok || got != kind || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v (%v), want %s (%v)", err, got, want, kind)
	}
}

func repeatedRequests(t *testing.T, open Open) {
	s := open(t)
	must(t, s, Network("a", "10.1.0.0/24"), Network("b", "10.2.0.0/24"))
	first := attach(t, s, Request("a", "c1"))
	again, created, err := s.Attach(t.Context(), Request("a", "c1"), 99)
	if d := cmp.Diff(fmt.Sprint(first), fmt.Sprint(again.Attachment)); d != "" || created || err != nil {
		t.Errorf("%v, %v, -want +got:\n%s", created, err, d)
	}
	_, _, err = s.Attach(t.Context(), Request("b", "c1"), 1)
	rejected(t, err, vdn.Conflict, "attachment c1.net1, network: it is in a, not in b: delete it first")
	other := Request("a", "c1")
	other.Node = "n2"
	_, _, err = s.Attach(t.Context(), other, 1)
	rejected(t, err, vdn.Conflict, "node: it is on n1, not on n2")
	other = Request("a", "c1")
	other.Addresses = []netip.Addr{netip.MustParseAddr("10.1.0.200")}
	_, _, err = s.Attach(t.Context(), other, 1)
	rejected(t, err, vdn.Conflict, "addresses: it has others than 10.1.0.200")
	_, _, err = s.Attach(t.Context(), Request("none", "c2"), 1)
	rejected(t, err, vdn.NotFound, "network none: not there")
}

func requestedAddresses(t *testing.T, open Open) {
	s := open(t)
	n := Network("a", "10.1.0.0/29")
	n.Subnets[0].Gateway = netip.MustParseAddr("10.1.0.1")
	n.Subnets[0].Reserved = []vdn.Reservation{{Address: netip.MustParseAddr("10.1.0.4"), Owner: "lab/store"}}
	must(t, s, n)
	ask := func(container, owner, address string) (string, error) {
		r := Request("a", container)
		r.Owner = owner
		if address != "" {
			r.Addresses = []netip.Addr{netip.MustParseAddr(address)}
		}
		l, _, err := s.Attach(t.Context(), r, 1)
		if err != nil {
			return "", err
		}
		return l.Attachment.Addresses[0].String(), nil
	}
	for _, c := range []struct{ container, owner, address, want string }{
		{"c1", "", "", "10.1.0.2/29"},
		{"c2", "lab/store", "", "10.1.0.4/29"},
		{"c3", "lab/store", "", "attachment c3.net1, owner: 10.1.0.4, which is reserved for lab/store, is taken by attachment c2.net1: delete that first"},
		{"c4", "", "10.1.0.4", "addresses: 10.1.0.4 is taken by attachment c2.net1"},
		{"c5", "", "10.1.0.1", "addresses: 10.1.0.1 is not handed out by network a"},
		{"c6", "", "10.9.0.1", "addresses: 10.9.0.1 is not handed out by network a"},
		{"c7", "", "fd00::1", "addresses: fd00::1 is of a family that network a has no subnet of"},
		{"c8", "", "10.1.0.6", "10.1.0.6/29"},
		{"c9", "", "", "10.1.0.3/29"},
		{"c10", "", "", "10.1.0.5/29"},
		{"c11", "", "", "attachment c11.net1, network: the pool of network a in 10.1.0.0/29 is empty: delete attachments, or widen its ranges"},
	} {
		got, err := ask(c.container, c.owner, c.address)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.container, got, c.want)
		}
	}
	if err := s.Detach(t.Context(), "c2.net1"); err != nil {
		t.Fatal(err)
	}
	_, err := ask("c12", "x/y", "10.1.0.4")
	rejected(t, err, vdn.Conflict, "10.1.0.4 is reserved for lab/store")
	_, err = ask("c13", "", "")
	rejected(t, err, vdn.Conflict, "is empty but for what is reserved")
}

// replacedPod checks a successor that attaches before its predecessor has
// detached. It gets its own address. An address reserved for both is only assigned to it
// after the predecessor has released it. The predecessor's late detach takes nothing from
// it. All of this also holds across restarts.
func replacedPod(t *testing.T, open Open) {
	s := open(t)
	again := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t)
	}
	reserved := Network("reserved", "10.2.0.0/24")
	reserved.Subnets[0].Reserved = []vdn.Reservation{{Address: netip.MustParseAddr("10.2.0.9"), Owner: "lab/db-0"}}
	must(t, s, Network("plain", "10.1.0.0/24"), reserved)
	of := func(network, container, uid string) vdn.AttachmentRequest {
		r := Request(network, container)
		r.Owner, r.OwnerUID = "lab/db-0", uid
		return r
	}
	old, kept := attach(t, s, of("plain", "old", "1")), attach(t, s, of("reserved", "oldest", "1"))
	again()
	fresh := attach(t, s, of("plain", "new", "2"))
	if fresh.Addresses[0] == old.Addresses[0] || old.OwnerUID != "1" || fresh.OwnerUID != "2" {
		t.Errorf("two pods with one name have %+v and %+v", old, fresh)
	}
	_, _, err := s.Attach(t.Context(), of("reserved", "newest", "2"), 1)
	rejected(t, err, vdn.Conflict, "10.2.0.9, which is reserved for lab/db-0, is taken by attachment oldest.net1")
	again()
	if err := errors.Join(s.Detach(t.Context(), old.ID), s.Detach(t.Context(), kept.ID)); err != nil {
		t.Fatal(err)
	}
	if a, err := s.Attachment(fresh.ID); err != nil || a.Addresses[0] != fresh.Addresses[0] || a.OwnerUID != "2" {
		t.Errorf("the successor has %+v, %v", a, err)
	}
	if a := attach(t, s, of("reserved", "newest", "2")); a.Addresses[0] != kept.Addresses[0] {
		t.Errorf("the successor has %s", a.Addresses[0])
	}
	again()
	if err := errors.Join(s.Detach(t.Context(), old.ID), s.Detach(t.Context(), kept.ID)); err != nil { // a late repetition
		t.Fatal(err)
	}
	if left := len(s.Attachments("", "")); left != 2 {
		t.Errorf("%d leases are left, want 2", left)
	}
}

// restartedPod checks a restarted pod that continues its lease with another
// container ID, as the node did while no controller was reachable. It continues the first
// existing lease of those named, only of the same pod in the same place, and repeated
// requests get the same result.
func restartedPod(t *testing.T, open Open) {
	s := open(t)
	must(t, s, Network("a", "10.1.0.0/24"), Network("b", "10.2.0.0/24"))
	first := Request("a", "old")
	first.Owner, first.OwnerUID = "lab/db-0", "1"
	old := attach(t, s, first)
	attach(t, s, Request("a", "other"))
	next := func(change func(r *vdn.AttachmentRequest)) vdn.AttachmentRequest {
		r := Request("a", "new")
		r.Owner, r.OwnerUID, r.Addresses, r.Replaces = "lab/db-0", "1", []netip.Addr{old.Addresses[0].Addr()}, []string{"between.net1", old.ID}
		change(&r)
		return r
	}
	for want, change := range map[string]func(r *vdn.AttachmentRequest){
		"ownerUID: it is missing":                              func(r *vdn.AttachmentRequest) { r.OwnerUID = "" },
		"replaces: old.net1 is another pod's":                  func(r *vdn.AttachmentRequest) { r.OwnerUID = "2" },
		"replaces: old.net1 is net1 in network a on node n1":   func(r *vdn.AttachmentRequest) { r.Node = "n2" },
		"replaces: old.net1 has not the address 10.1.0.77":     func(r *vdn.AttachmentRequest) { r.Addresses[0] = netip.MustParseAddr("10.1.0.77") },
		"attachment new.net1, replaces: old.net1 is net1 in n": func(r *vdn.AttachmentRequest) { r.Network, r.Addresses = "b", nil },
	} {
		if _, _, err := s.Attach(t.Context(), next(change), 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for range 2 {
		a := attach(t, s, next(func(*vdn.AttachmentRequest) {}))
		if a.Addresses[0] != old.Addresses[0] || a.ID != "new.net1" || a.Phase != vdn.Leased {
			t.Errorf("the lease continues as %+v", a)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t)
	}
	if left := s.Attachments("a", ""); len(left) != 2 {
		t.Errorf("leases: %+v", left)
	}
	// If the lease was released meanwhile, the address itself is requested.
	if err := s.Detach(t.Context(), "new.net1"); err != nil {
		t.Fatal(err)
	}
	last := attach(t, s, next(func(r *vdn.AttachmentRequest) { r.Container, r.Replaces = "newer", []string{"new.net1"} }))
	if last.Addresses[0] != old.Addresses[0] {
		t.Errorf("after the release the pod gets %s", last.Addresses[0])
	}
}

func exclusiveDevices(t *testing.T, open Open) {
	s := open(t)
	n, other := Network("a", "10.1.0.0/24"), Network("b", "10.2.0.0/24")
	n.Mode, other.Mode = vdn.HostDevice, vdn.HostDevice
	must(t, s, n, other)
	with := func(network, container string, devices ...string) vdn.AttachmentRequest {
		r := Request(network, container)
		r.Devices = devices
		return r
	}
	for _, c := range []struct {
		request vdn.AttachmentRequest
		want    string
	}{{with("a", "c1", "eth2", "eth1", "eth9"), "eth1"}, {with("b", "c2", "eth1", "eth2"), "eth2"}} {
		if a := attach(t, s, c.request); a.Device != c.want {
			t.Errorf("%s is assigned %s, want %s", a.ID, a.Device, c.want)
		}
	}
	_, _, err := s.Attach(t.Context(), with("a", "c3", "eth1", "eth2"), 1)
	rejected(t, err, vdn.Conflict, "attachment c3.net1, devices: node n1 has no device free of network a, which is on eth1, eth2: eth1 is taken by attachment c1.net1, eth2 is taken by attachment c2.net1;")
	_, _, err = s.Attach(t.Context(), with("a", "c3"), 1)
	rejected(t, err, vdn.Conflict, "it has none of them")
	elsewhere := with("a", "c4", "eth1")
	elsewhere.Node = "n2"
	attach(t, s, elsewhere)
	if err := s.Detach(t.Context(), "c1.net1"); err != nil {
		t.Fatal(err)
	}
	if a := attach(t, s, with("a", "c3", "eth1", "eth2")); a.Device != "eth1" {
		t.Errorf("the released device is not assigned: %s", a.Device)
	}
	_, err = s.Up(t.Context(), "c3.net1", vdn.UpReport{Device: "eth2", MAC: "02:00:00:00:00:01", NetNS: "/x"})
	rejected(t, err, vdn.Conflict, "attachment c3.net1, device: it was given eth1, not eth2")
	_, err = s.Up(t.Context(), "c9.net1", vdn.UpReport{Device: "eth2", MAC: "02:00:00:00:00:01", NetNS: "/x"})
	rejected(t, err, vdn.NotFound, "attachment c9.net1: not there")
}

func changedNetworks(t *testing.T, open Open) {
	s := open(t)
	must(t, s, Network("a", "10.1.0.0/24"), Network("b", "10.2.0.0/24"))
	r := Request("a", "c1")
	r.Addresses = []netip.Addr{netip.MustParseAddr("10.1.0.50")}
	attach(t, s, r)
	for want, change := range map[string]func(*vdn.Network){
		"mode: host-device changes it under attachment c1.net1":         func(n *vdn.Network) { n.Mode = vdn.HostDevice },
		"subnets: none is 10.1.0.0/24, of which attachment c1.net1 has": func(n *vdn.Network) { n.Subnets[0].CIDR = netip.MustParsePrefix("10.1.0.0/16") },
		"subnets[0].gateway: 10.1.0.50 is taken by attachment c1.net1":  func(n *vdn.Network) { n.Subnets[0].Gateway = netip.MustParseAddr("10.1.0.50") },
		"subnets[0].ranges: none holds 10.1.0.50, which attachment c1.net1 has:": func(n *vdn.Network) {
			n.Subnets[0].Ranges = []vdn.Range{{First: netip.MustParseAddr("10.1.0.2"), Last: netip.MustParseAddr("10.1.0.49")}}
		},
		"subnets[0].cidr: 10.2.0.0/16 overlaps 10.2.0.0/24 of network b": func(n *vdn.Network) { n.Subnets[0].CIDR = netip.MustParsePrefix("10.2.0.0/16") },
	} {
		n := Network("a", "10.1.0.0/24")
		change(&n)
		_, err := s.PutNetwork(t.Context(), n, nil)
		rejected(t, err, vdn.Conflict, "network a, "+want)
	}
	narrow := Network("a", "10.1.0.0/24")
	narrow.Subnets[0].Ranges = []vdn.Range{{First: netip.MustParseAddr("10.1.0.50"), Last: netip.MustParseAddr("10.1.0.51")}}
	must(t, s, narrow)
	if a := attach(t, s, Request("a", "c2")); a.Addresses[0].String() != "10.1.0.51/24" {
		t.Errorf("after the change %s is assigned", a.Addresses[0])
	}
	rejected(t, s.DeleteNetwork(t.Context(), "a", nil), vdn.Conflict, "network a: it has attachments: delete c1.net1, c2.net1 first")
	if err := errors.Join(s.Detach(t.Context(), "c1.net1"), s.Detach(t.Context(), "c2.net1"), s.Detach(t.Context(), "c2.net1"), s.DeleteNetwork(t.Context(), "a", nil), s.DeleteNetwork(t.Context(), "a", nil)); err != nil {
		t.Error(err)
	}
	must(t, s, Network("a", "10.1.0.0/24"))
	if a := attach(t, s, Request("a", "c1")); a.Addresses[0].String() != "10.1.0.1/24" {
		t.Errorf("released addresses of a deleted network are remembered: %s is assigned first", a.Addresses[0])
	}
}

func collectInvalid(t *testing.T, open Open) {
	s := open(t)
	must(t, s, Network("a", "10.1.0.0/24"), Network("b", "10.2.0.0/24"))
	for _, c := range []string{"c1", "c2", "c3"} {
		attach(t, s, Request("a", c))
	}
	attach(t, s, Request("b", "c4"))
	other := Request("a", "c5")
	other.Node = "n2"
	attach(t, s, other)
	got, err := s.Collect(t.Context(), "n1", "a", []string{"c2.net1", "never.net1"})
	if d := cmp.Diff([]string{"c1.net1", "c3.net1"}, got); d != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, d)
	}
	if left := len(s.Attachments("", "")); left != 3 {
		t.Errorf("%d leases are left, want 3", left)
	}
}

// collectMany releases more leases than fit into one batch of a backend.
func collectMany(t *testing.T, open Open) {
	s := open(t)
	n := Network("a", "10.1.0.0/24")
	n.Subnets = append(n.Subnets, vdn.Subnet{CIDR: netip.MustParsePrefix("fd00::/64")})
	must(t, s, n)
	const many = 100
	for i := range many {
		attach(t, s, Request("a", fmt.Sprint("c", i)))
	}
	released, err := s.Collect(t.Context(), "n1", "a", []string{"c7.net1"})
	if len(released) != many-1 || err != nil {
		t.Errorf("%d leases were released, %v", len(released), err)
	}
	if err := s.Detach(t.Context(), "c7.net1"); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteNetwork(t.Context(), "a", nil); err != nil {
		t.Error(err)
	}
	must(t, s, n)
	if a := attach(t, s, Request("a", "d")); a.Addresses[0].String() != "10.1.0.1/24" {
		t.Errorf("released addresses of a deleted network are remembered: %s is assigned first", a.Addresses[0])
	}
}

// manyOfferedNetworks numbers more networks than fit into one batch of a backend.
func manyOfferedNetworks(t *testing.T, open Open) {
	s := open(t)
	peer := vdn.Peer{Domain: "busan", URL: "https://x:1", NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	if _, err := s.PutPeer(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	view := vdn.PeerView{Peer: peer, Connected: true}
	const many = 400
	for i := range many {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		view.Networks = append(view.Networks, vdn.SharedNetwork{Name: fmt.Sprint("n", i), Prefixes: []netip.Prefix{prefix}})
	}
	if err := s.SetOffers(t.Context(), []vdn.PeerView{view}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	state, _ := open(t).State("")
	numbers := map[uint16]bool{}
	for _, id := range state.Slices {
		numbers[id] = true
	}
	if len(numbers) != many || len(state.Peers[0].Networks) != many {
		t.Errorf("%d networks have %d IDs", len(state.Peers[0].Networks), len(numbers))
	}
}

// model is the reference model: what the store must contain, tracked in a simple way.
type model struct {
	mu   sync.Mutex
	has  map[string]netip.Addr
	seen int
}

func (w *model) attached(t *testing.T, a vdn.Attachment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, addr := range w.has {
		if addr == a.Addresses[0].Addr() && id != a.ID {
			t.Errorf("%s is assigned to %s and to %s", addr, id, a.ID)
		}
	}
	if was, again := w.has[a.ID]; again && was != a.Addresses[0].Addr() {
		t.Errorf("%s has %s, then %s", a.ID, was, a.Addresses[0])
	}
	w.has[a.ID] = a.Addresses[0].Addr()
	w.seen++
}

// uniqueAddresses lets many clients attach and detach concurrently, while the
// store is closed and reopened repeatedly.
func uniqueAddresses(t *testing.T, open Open) {
	w := &model{has: map[string]netip.Addr{}}
	for round := range 6 {
		s := open(t)
		if round == 0 {
			must(t, s, Network("a", "10.1.0.0/26"))
		}
		var group sync.WaitGroup
		for worker := range 8 {
			group.Go(func() { work(t, s, w, worker, rand.New(rand.NewPCG(uint64(round), uint64(worker)))) })
		}
		group.Wait()
		got := map[string]netip.Addr{}
		for _, a := range s.Attachments("a", "n1") {
			got[a.ID] = a.Addresses[0].Addr()
		}
		if d := cmp.Diff(w.has, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
			t.Errorf("round %d, -want +got:\n%s", round, d)
		}
		revision := s.Revision()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if again := open(t); again.Revision() != revision {
			t.Errorf("revision %d became %d", revision, again.Revision())
		} else if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if w.seen < 100 {
		t.Errorf("only %d attachments were created", w.seen)
	}
}

// work is one client. Each client has its own containers, so that the reference model
// knows the expected state of each.
func work(t *testing.T, s *store.Store, w *model, worker int, r *rand.Rand) {
	for range 40 {
		container := fmt.Sprintf("w%d-%d", worker, r.IntN(10))
		if r.IntN(2) == 0 {
			// Delete it from the model first. As soon as it is released, another client
			// may get the address.
			w.mu.Lock()
			delete(w.has, container+".net1")
			w.mu.Unlock()
			if err := s.Detach(t.Context(), container+".net1"); err != nil {
				t.Error(err)
			}
			continue
		}
		lease, _, err := s.Attach(t.Context(), Request("a", container), 1)
		if kind, no := vdn.KindOf(err); no && kind == vdn.Conflict && strings.Contains(err.Error(), "is empty") {
			continue
		} else if err != nil {
			t.Error(err)
			continue
		}
		w.attached(t, lease.Attachment)
	}
}

// reuseOrder checks that the address released longest ago is assigned first,
// also by a store that was opened since then.
func reuseOrder(t *testing.T, open Open) {
	s := open(t)
	must(t, s, Network("a", "10.1.0.0/29"))
	for i := range 4 {
		attach(t, s, Request("a", fmt.Sprint("c", i)))
	}
	for _, i := range []int{2, 0, 1} {
		if err := s.Detach(t.Context(), fmt.Sprintf("c%d.net1", i)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for i := range 5 {
		if i == 1 || i == 3 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t)
		}
		got = append(got, attach(t, s, Request("a", fmt.Sprint("d", i))).Addresses[0].Addr().String())
	}
	if want := "10.1.0.5 10.1.0.6 10.1.0.3 10.1.0.1 10.1.0.2"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func offeredNetworks(t *testing.T, open Open) {
	s := open(t)
	must(t, s, Network("a", "10.1.0.0/24"))
	peer := vdn.Peer{Domain: "busan", URL: "https://x:1", NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	if _, err := s.PutPeer(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	_, err := s.PutPeer(t.Context(), vdn.Peer{Domain: "here", URL: "https://x:1", NextHops: peer.NextHops})
	rejected(t, err, vdn.Invalid, "peer here, domain: it is this domain itself")
	offer := []vdn.PeerView{{Peer: vdn.Peer{Domain: "busan"}, Connected: true, Networks: []vdn.SharedNetwork{
		{Name: "c", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}},
		{Name: "bad", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/25")}},
	}}, {Peer: vdn.Peer{Domain: "nobody"}, Networks: []vdn.SharedNetwork{{Name: "x", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.7.0.0/24")}}}}}
	if err := s.SetOffers(t.Context(), offer); err != nil {
		t.Fatal(err)
	}
	revision := s.Revision()
	if err := s.SetOffers(t.Context(), offer); err != nil || s.Revision() != revision {
		t.Errorf("setting the same offers again: %v, revision %d became %d", err, revision, s.Revision())
	}
	_, err = s.PutNetwork(t.Context(), Network("z", "10.9.0.0/16"), nil)
	rejected(t, err, vdn.Conflict, "10.9.0.0/16 overlaps 10.9.0.0/24 of busan's network c")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t)
	state, _ := s.State("")
	if d := cmp.Diff(map[string]uint16{"a": 1, "busan/c": 2}, state.Slices); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if n := state.Peers[0].Networks; len(state.Peers) != 1 || n[0].Refused != "" || !strings.Contains(n[1].Refused, "overlaps 10.1.0.0/24 of network a") {
		t.Errorf("%+v", state.Peers)
	}
	// The conflict is gone.
	if err := s.DeleteNetwork(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	if n := s.Peers()[0].Networks; n[1].Refused != "" {
		t.Errorf("still rejected: %s", n[1].Refused)
	}
	if err := s.DeletePeer(t.Context(), "busan"); err != nil || len(s.Peers()) != 0 {
		t.Errorf("%v, %v", err, s.Peers())
	}
	must(t, s, Network("z", "10.9.0.0/16"))
}
