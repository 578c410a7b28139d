package proxy

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

// model is the expected state of a data plane.
type model map[proxy.Key]proxy.Frontend

// equal compares frontends and prefixes, which hide their fields.
var equal = gocmp.Options{
	gocmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	gocmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	gocmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

// check compares the kernel's state, with both ways to list it.
func (m model) check(t testing.TB, d *DataPlane) {
	t.Helper()
	for _, list := range []func(func(Held, error) bool){d.List(), List(d.config.PinDir)} {
		programmed := model{}
		for h, err := range list {
			if err != nil {
				t.Fatal(err)
			}
			programmed[h.Key] = h.Frontend
		}
		if diff := gocmp.Diff(m, programmed, equal); diff != "" {
			t.Fatalf("programmed frontends differ (-want +programmed):\n%s", diff)
		}
	}
	keys := d.Keys()
	slices.SortFunc(keys, proxy.Key.Compare)
	if want := slices.SortedFunc(maps.Keys(m), proxy.Key.Compare); !slices.Equal(keys, want) {
		t.Fatalf("Keys gave %v, want %v", keys, want)
	}
}

// randomFrontend makes one for a key, with few values of everything, so that they are
// often equal.
func randomFrontend(r *rand.Rand, k proxy.Key) proxy.Frontend {
	some := func() (c proxy.Choice) {
		for i := range r.IntN(6) {
			a := netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), byte(i)})
			if k.Addr.Is6() {
				a = netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(r.IntN(2)), 15: byte(i)})
			}
			c.Targets = append(c.Targets, proxy.Target{Addr: netip.AddrPortFrom(a, 8080), Local: r.IntN(4) == 0})
		}
		slices.SortFunc(c.Targets, func(a, b proxy.Target) int { return a.Addr.Compare(b.Addr) })
		if len(c.Targets) == 0 {
			c.Empty = proxy.Empty(r.IntN(2))
		}
		if n := len(c.Targets); n > 0 && r.IntN(3) == 0 {
			split := r.IntN(n)
			c.Targets, c.Keeps = c.Targets[:split:split], c.Targets[split:]
			if split == 0 {
				c.Targets = nil
			}
		}
		return c
	}
	f := proxy.Frontend{Key: k, Kind: proxy.Kind(r.IntN(4)), Inside: some(), Affinity: time.Duration(r.IntN(3)) * time.Hour}
	if f.Outside = f.Inside; r.IntN(3) == 0 {
		f.Outside = some()
	}
	switch r.IntN(5) {
	case 0:
		f.Closed = true
	case 1:
		for i := range 1 + r.IntN(3) {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, byte(i)}), 8+r.IntN(8)).Masked()
			if k.Addr.Is6() {
				p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, byte(i)}), 16+r.IntN(8)).Masked()
			}
			f.Allow = append(f.Allow, p)
		}
		slices.SortFunc(f.Allow, comparePrefixes)
		f.Allow = slices.Compact(f.Allow)
	}
	return f
}

func randomKey(r *rand.Rand) proxy.Key {
	k := proxy.Key{
		Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(r.IntN(20))}), Port: uint16(80 + r.IntN(2)),
		Protocol: []service.Protocol{service.TCP, service.UDP, service.SCTP}[r.IntN(3)],
	}
	switch r.IntN(4) {
	case 0:
		k.Addr = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(r.IntN(20))})
	case 1:
		k.Addr = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}[r.IntN(2)]
		k.Port = uint16(30000 + r.IntN(10))
	}
	return k
}

func TestHoldsWhatIsMeant(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := config(t)
	c.MaxTargets = 1600      // so few that room is reused often
	c.MaxSourceRanges = 1024 // each of 300 keys may have three
	d := open(t, c)
	m := model{}
	for step := range 300 {
		var set []proxy.Frontend
		var gone []proxy.Key
		for range r.IntN(12) {
			f := randomFrontend(r, randomKey(r))
			m[f.Key] = f
			set = append(set, f)
		}
		for range r.IntN(8) {
			if k := randomKey(r); !slices.ContainsFunc(set, func(f proxy.Frontend) bool { return f.Key == k }) {
				gone = append(gone, k)
				delete(m, k)
			}
		}
		if err := d.Apply(set, gone); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if step%10 == 0 {
			m.check(t, d)
		}
		if step%50 == 49 {
			d = again(t, d)
			m.check(t, d)
		}
	}
	if err := errors.Join(d.Apply(nil, d.Keys()), d.rouse()); err != nil {
		t.Fatal(err)
	}
	if _, ok := d.runs.space.take(c.MaxTargets); !ok || len(d.runs.byHash) > 0 {
		t.Errorf("no frontends are programmed, but %d runs still have endpoints", len(d.runs.byHash))
	}
	if _, ok := d.ids.take(c.MaxFrontends); !ok || len(d.allowed) > 0 {
		t.Errorf("no frontends are programmed, but some IDs, or source ranges of %d, are still in use", len(d.allowed))
	}
}

// again ends an agent and starts the next.
func again(t testing.TB, d *DataPlane) *DataPlane {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, d.config)
}

// bytesOf returns a map's entries as stored in the kernel.
func bytesOf(t testing.TB, d *DataPlane) map[string]string {
	t.Helper()
	all := map[string]string{"targets": string(targetBytes(d.runs.memory))}
	for e, err := range services(d.kernel.Services) {
		if err != nil {
			t.Fatal(err)
		}
		all[fmt.Sprint(e.key)] = fmt.Sprint(e.value)
	}
	keys, err := rangeKeys(d.kernel.SourceRanges)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		all[fmt.Sprint(k)] = ""
	}
	return all
}

func TestWritesOnlyWhatDiffers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	d := open(t, config(t))
	m := model{}
	for range 200 {
		f := randomFrontend(r, randomKey(r))
		m[f.Key] = f
	}
	set := slices.Collect(maps.Values(m))
	nodes := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	state := func() {
		apply(t, d, set...)
		if err := d.SetNodeAddresses(nodes); err != nil {
			t.Fatal(err)
		}
	}
	state()
	before, writes := bytesOf(t, d), d.writes
	state()
	if d.writes != writes {
		t.Errorf("%d entries written for what was programmed", d.writes-writes)
	}
	d = again(t, d)
	state()
	if d.writes != 0 {
		t.Errorf("%d entries written after a restart", d.writes)
	}
	if diff := gocmp.Diff(before, bytesOf(t, d)); diff != "" {
		t.Errorf("the kernel holds other bytes:\n%s", diff)
	}
	one := frontend(set[0].Key)
	one.Allow, one.Closed = nil, !set[0].Closed
	apply(t, d, one)
	if d.writes == 0 || d.writes > 5 {
		t.Errorf("%d entries written for one frontend", d.writes)
	}
}

func TestEqualTargetsAreOneRun(t *testing.T) {
	d := open(t, config(t))
	at := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")}
	a, b := key("10.96.0.1:80", service.TCP), key("0.0.0.0:30080", service.TCP)
	apply(t, d, frontend(a, at...), frontend(b, at...))
	runOf := func(k proxy.Key) proxyRun { return d.programmed[toKey(k)].Inside }
	if runOf(a) != runOf(b) || runOf(a) != d.programmed[toKey(a)].Outside {
		t.Errorf("runs %v and %v", runOf(a), runOf(b))
	}
	d = again(t, d)
	apply(t, d, frontend(a, at[0]))
	apply(t, d, frontend(a, at...))
	if runOf(a) != runOf(b) {
		t.Errorf("after a restart, runs %v and %v", runOf(a), runOf(b))
	}
}

// A caller may reuse the memory of one call's input for the next.
func TestTargetsInTheSameMemory(t *testing.T) {
	d := open(t, config(t))
	f := frontend(key("10.96.0.1:80", service.TCP), netip.MustParseAddrPort("10.0.0.1:80"))
	apply(t, d, f)
	f.Inside.Targets[0].Addr = netip.MustParseAddrPort("10.0.0.2:80")
	apply(t, d, f)
	model{f.Key: f}.check(t, d)
}

func TestRefusesByNameAndHoldsTheOthers(t *testing.T) {
	c := config(t)
	c.MaxFrontends, c.MaxTargets = 4, 16
	d := open(t, c)
	at := func(n int) (all []netip.AddrPort) {
		for i := range n {
			all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80))
		}
		return all
	}
	good := frontend(key("10.96.0.1:80", service.TCP), at(2)...)
	unsorted := frontend(key("10.96.0.2:80", service.TCP), at(2)[1], at(2)[0])
	many := frontend(key("10.96.0.2:80", service.TCP), at(17)...)
	mixed := frontend(key("10.96.0.2:80", service.TCP), netip.MustParseAddrPort("[fd00::1]:80"))
	ranged := frontend(key("10.96.0.2:80", service.TCP))
	ranged.Allow = []netip.Prefix{netip.MustParsePrefix("fd00::/8")}
	for _, bad := range []struct {
		f   proxy.Frontend
		say string
	}{
		{unsorted, "sort endpoints"}, {many, "raise MaxTargets"}, {mixed, "another IP family"},
		{ranged, "another IP family"}, {frontend(key("10.96.0.2:80", service.AnyProtocol)), "protocol any"},
		{proxy.Frontend{Key: proxy.Key{Protocol: service.TCP}}, "address"},
	} {
		err := d.Apply([]proxy.Frontend{bad.f, good}, nil)
		refused, rest := proxy.Refusals(err)
		if len(refused) != 1 || rest != nil || refused[0].Key != bad.f.Key || !strings.Contains(err.Error(), bad.say) {
			t.Errorf("want one refusal for %q: %v", bad.say, err)
		}
		model{good.Key: good}.check(t, d)
	}
	m := model{good.Key: good}
	for i := range 3 {
		f := frontend(key(fmt.Sprintf("10.96.1.%d:80", i), service.TCP))
		apply(t, d, f)
		m[f.Key] = f
	}
	extra := frontend(key("10.96.2.1:80", service.TCP))
	if err := d.Apply([]proxy.Frontend{extra}, nil); err == nil || !strings.Contains(err.Error(), "raise MaxFrontends") {
		t.Errorf("one too many: %v", err)
	}
	if err := d.Apply([]proxy.Frontend{extra}, []proxy.Key{good.Key}); err == nil {
		t.Error("room before it was made")
	}
	delete(m, good.Key)
	m[extra.Key] = extra
	apply(t, d, extra)
	m.check(t, d)
}

// Damage by another process is repaired when everything is applied again.
func TestRepairsDamage(t *testing.T) {
	d := open(t, config(t))
	m := model{}
	for i := range 4 {
		f := frontend(key(fmt.Sprintf("10.96.0.%d:80", i), service.TCP), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80))
		m[f.Key] = f
	}
	set := slices.Collect(maps.Values(m))
	apply(t, d, set...)
	alien := toKey(key("10.96.1.1:80", service.TCP))
	v := d.programmed[toKey(set[0].Key)]
	v.Check = checkOf(alien, v)
	if err := errors.Join(d.kernel.Services.Delete(toKey(set[1].Key)), d.kernel.Services.Put(alien, v)); err != nil {
		t.Fatal(err)
	}
	gone := slices.DeleteFunc(d.Keys(), func(k proxy.Key) bool { _, wanted := m[k]; return wanted })
	if err := d.Apply(set, gone); err != nil {
		t.Fatal(err)
	}
	m.check(t, d)
	if d.Keys(); d.wrote {
		t.Error("Keys did not read the map")
	}
}

// Damaged entries are removed, and applied again.
func TestDamage(t *testing.T) {
	d := open(t, config(t))
	f := frontend(key("10.96.0.1:80", service.TCP), netip.MustParseAddrPort("10.0.0.1:80"))
	other := frontend(key("10.96.0.2:80", service.TCP), serveTCP(t, "127.1.0.1:0", "other"))
	apply(t, d, f, other)
	v := d.programmed[toKey(f.Key)]
	v.Inside.First++
	if err := d.kernel.Services.Put(toKey(f.Key), v); err != nil {
		t.Fatal(err)
	}
	if err := newSocket(t, unix.AF_INET, unix.SOCK_STREAM).connect(netip.AddrPortFrom(f.Addr, f.Port)); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("the programs accepted an inconsistent entry: %v", err)
	}
	d = again(t, d)
	model{other.Key: other}.check(t, d)
	apply(t, d, f)
	model{other.Key: other, f.Key: f}.check(t, d)
}

func TestReadsAgainAfterAFailure(t *testing.T) {
	d := open(t, config(t))
	f := frontend(key("10.96.0.1:80", service.TCP), netip.MustParseAddrPort("10.0.0.1:80"))
	other := frontend(key("10.96.0.2:80", service.TCP), netip.MustParseAddrPort("10.0.0.2:80"))
	apply(t, d, f)
	if err := d.kernel.Services.Freeze(); err != nil {
		t.Skip(err)
	}
	if err := d.Apply([]proxy.Frontend{other}, nil); !errors.Is(err, unix.EPERM) {
		t.Fatalf("a map that is frozen took an entry: %v", err)
	}
	if err := d.Apply(nil, nil); err != nil {
		t.Fatal(err)
	}
	model{f.Key: f}.check(t, d)
}

func TestOneAgentAtATime(t *testing.T) {
	c := config(t)
	d := open(t, c)
	if other, err := Open(c); err == nil {
		other.Close()
		t.Fatal("a second one has the same pins")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Apply(nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Apply after Close: %v", err)
	}
	bigger := c
	bigger.MaxTargets *= 2
	if other, err := Open(bigger); !errors.Is(err, ErrLayout) {
		t.Errorf("maps of another size: %v", err)
		if err == nil {
			other.Close()
		}
	}
	open(t, c)
}

func TestDetachLeavesNothing(t *testing.T) {
	c := config(t)
	d := open(t, c)
	own := serveTCP(t, "127.1.0.1:0", "own")
	apply(t, d, frontend(key("10.96.0.1:80", service.TCP), own))
	s := newSocket(t, unix.AF_INET, unix.SOCK_STREAM)
	if err := s.connect(netip.MustParseAddrPort("10.96.0.1:80")); err != nil {
		t.Fatal(err)
	}
	if err := d.Detach(); err != nil {
		t.Fatal(err)
	}
	if peer := s.peer(); peer != own {
		t.Errorf("a program is still there: the peer's name is %s", peer)
	}
	for range List(c.PinDir) {
		return // one error: nothing is programmed
	}
	t.Error("List gave nothing, and no error")
}

// Connections continue while an agent ends and the next replaces its programs, also when
// moving to another cgroup.
func TestRestartUnderConnections(t *testing.T) {
	d := open(t, config(t))
	k := key("10.96.0.1:80", service.TCP)
	to := netip.AddrPortFrom(k.Addr, k.Port)
	apply(t, d, frontend(k, serveTCP(t, "127.1.0.1:0", "server")))
	s := newSocket(t, unix.AF_INET, unix.SOCK_STREAM)
	if err := s.connect(to); err != nil {
		t.Fatal(err)
	}
	s.receive()
	stop := dialing(t, to)
	for range 5 {
		d = again(t, d)
	}
	stop()
	if _, err := unix.Write(s.fd, []byte("still?")); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.receive(); got != "still?" || s.peer() != to && !refusals.Without(features.PeerName) {
		t.Errorf("the old connection receives %q from %s", got, s.peer())
	}
	d.config.Cgroup = testkit.EnterCgroup(t)
	again(t, d)
	if name := dial(t, to); name != "server" {
		t.Errorf("in another cgroup %q answered", name)
	}
}

// dialing connects continuously from two goroutines until it is stopped. Each connection
// must get an answer.
func dialing(t testing.TB, to netip.AddrPort) (stop func()) {
	var done atomic.Bool
	var n atomic.Int64
	var group errgroup.Group
	for range 2 {
		group.Go(func() error {
			for !done.Load() {
				if _, err := tryDial(to); err != nil {
					return err
				}
				n.Add(1)
			}
			return nil
		})
	}
	return func() {
		t.Helper()
		done.Store(true)
		if err := group.Wait(); err != nil {
			t.Errorf("after %d connections: %v", n.Load(), err)
		}
		t.Logf("%d connections", n.Load())
	}
}

// While endpoints are replaced a thousand times every connection reaches one of its own
// service's.
func TestChangesUnderLoad(t *testing.T) {
	c := config(t)
	c.MaxTargets = 16 // room is reused all the time
	d := open(t, c)
	var at []netip.AddrPort
	for i := range 4 {
		at = append(at, serveTCP(t, fmt.Sprintf("127.1.0.%d:7001", i+1), "right"))
	}
	wrong := serveTCP(t, "127.1.0.9:7001", "wrong")
	k, other := key("10.96.0.1:80", service.TCP), key("10.96.0.2:80", service.TCP)
	apply(t, d, frontend(k, at...))
	var done atomic.Bool
	var group errgroup.Group
	var n atomic.Int64
	for range 2 {
		group.Go(func() error {
			for !done.Load() {
				name, err := tryDial(netip.AddrPortFrom(k.Addr, k.Port))
				if err != nil || name != "right" {
					return fmt.Errorf("%q answered, %v", name, err)
				}
				n.Add(1)
			}
			return nil
		})
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 1000 {
		some := slices.Clone(at)
		r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		some = some[:1+r.IntN(len(some))]
		slices.SortFunc(some, netip.AddrPort.Compare)
		set := []proxy.Frontend{frontend(k, some...)}
		var gone []proxy.Key
		if i%2 == 0 {
			set = append(set, frontend(other, wrong, netip.AddrPortFrom(wrong.Addr(), 7002+uint16(r.IntN(3)))))
		} else {
			gone = append(gone, other)
		}
		if err := d.Apply(set, gone); err != nil {
			t.Fatal(err)
		}
	}
	done.Store(true)
	if err := group.Wait(); err != nil {
		t.Errorf("after %d connections: %v", n.Load(), err)
	}
	t.Logf("%d connections", n.Load())
}

// many makes Services with three endpoints each, and as many node ports.
func many(services int) (set []proxy.Frontend) {
	for i := range services {
		var targets []netip.AddrPort
		for j := range 3 {
			targets = append(targets, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i>>14)<<2 | byte(j), byte(i >> 7 & 127), byte(i & 127)}), 8080))
		}
		slices.SortFunc(targets, netip.AddrPort.Compare)
		c := choice(targets...)
		for _, k := range []proxy.Key{
			{Addr: netip.AddrFrom4([4]byte{172, 16 | byte(i>>16), byte(i >> 8), byte(i)}), Port: 80, Protocol: service.TCP},
			{Addr: netip.IPv4Unspecified(), Port: uint16(10000 + i), Protocol: service.TCP},
		} {
			set = append(set, proxy.Frontend{Key: k, Inside: c, Outside: c})
		}
	}
	return set
}

func TestFiftyThousandServices(t *testing.T) {
	c := config(t)
	c.MaxFrontends, c.MaxTargets = 0, 0
	d := open(t, c)
	set := many(50000)
	apply(t, d, set...)
	at := serveTCP(t, "127.1.0.1:0", "server")
	some := set[77776]
	some.Inside = choice(at)
	apply(t, d, some)
	if name := dial(t, netip.AddrPortFrom(some.Addr, some.Port)); name != "server" {
		t.Errorf("%q answered", name)
	}
	set[77776] = some
	d = again(t, d)
	apply(t, d, set...)
	if d.writes != 0 {
		t.Errorf("%d entries written after a restart", d.writes)
	}
	n := 0
	want := model{}
	for _, f := range set {
		want[f.Key] = f
	}
	for h, err := range d.List() {
		if n++; err != nil || !reflect.DeepEqual(want[h.Key], h.Frontend) {
			t.Fatalf("%s: %v, %v", h.Key, h, err)
		}
	}
	if n != len(want) {
		t.Errorf("%d frontends programmed of %d", n, len(want))
	}
	if kernel := kernelMemory(t, d); kernel > 100<<20 {
		t.Errorf("%d MB of kernel memory", kernel>>20)
	}
}

// kernelMemory sums the kernel's memory accounting of the maps, in bytes.
func kernelMemory(t testing.TB, d *DataPlane) (sum uint64) {
	t.Helper()
	k := &d.kernel
	for m, name := range map[interface{ FD() int }]string{
		k.Services: "services", k.Targets: "targets", k.Connections: "connections", k.SourceRanges: "source_ranges",
		k.Affinities: "affinities", k.Sent: "sent", k.Senders: "senders", k.NodeAddresses: "node_addresses", k.Origins: "origins",
	} {
		n := memlock(t, m.FD())
		t.Logf("%s: %d kB", name, n>>10)
		sum += n
	}
	return sum
}
