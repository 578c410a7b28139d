package addresspool

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func ranges(t testing.TB, texts ...string) (all []Range) {
	t.Helper()
	for _, text := range texts {
		r, err := ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func id(name string) service.ID { return service.ID{Namespace: "default", Name: name} }

var web = []Port{{service.TCP, 80, 80}}

func TestParseRange(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.1.7":                "10.1.1.7",
		"10.1.1.0/30":             "10.1.1.0-10.1.1.3",
		"10.1.1.5 - 10.1.1.9":     "10.1.1.5-10.1.1.9",
		"2001:db8::/127":          "2001:db8::-2001:db8::1",
		"2001:db8::1-2001:db8::f": "2001:db8::1-2001:db8::f",
		"10.1.1.1/24":             "did you mean 10.1.1.0/24?",
		"10.1.1.9-10.1.1.5":       "ends before it begins",
		"10.1.1.9-2001:db8::1":    "mixes IPv4 and IPv6",
		"10.1.1.9-":               "does not end with an address",
		"web":                     "is not an address, a prefix or a range",
		"10.1.1.0/33":             "is not a prefix",
		"127.0.0.0/8":             "not a unicast address",
		"::ffff:10.1.1.1":         "IPv4 address in IPv6 clothes",
		"fe80::1%eth0":            "has a zone",
	} {
		r, err := ParseRange(text)
		got := r.String()
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != want || err != nil && !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]uint64{
		"10.0.0.0/8": 1 << 24, "10.1.1.1": 1, "2001:db8::/64": math.MaxUint64, "2001:db8::/65": 1 << 63, "2001:db8::/48": math.MaxUint64,
		"2001:db8::ffff:ffff:ffff:fffe-2001:db8:0:1::1": 4,
	} {
		if got := ranges(t, text)[0].size(); got != want {
			t.Errorf("%s: %d addresses, want %d", text, got, want)
		}
	}
}

// TestWords checks the messages, which are as much part of the package as the decisions.
func TestWords(t *testing.T) {
	a := New()
	refused := a.SetPools([]Pool{
		{Name: "small", Addresses: ranges(t, "10.1.1.0-10.1.1.2"), Reserved: ranges(t, "10.1.1.0")},
		{Name: "kept", Addresses: ranges(t, "10.1.2.0/24"), Manual: true},
		{Name: "double", Addresses: ranges(t, "10.1.0.0/23")},
		{Name: "wide", Addresses: ranges(t, "12.0.0.0/7"), AvoidBuggy: true},
	})
	if got := fmt.Sprint(refused["double"]); got != "10.1.1.0-10.1.1.2 is of pool small, too, which was there first; take it out of one of them" {
		t.Error(got)
	}
	if got := fmt.Sprint(refused["wide"]); !strings.Contains(got, "12.0.0.0-13.255.255.255 has more than 16777216 addresses") {
		t.Error(got)
	}
	v4 := Request{Families: []Family{IPv4}, Ports: web}
	with := func(change func(*Request)) Request { r := v4; change(&r); return r }
	for _, step := range []struct {
		name string
		r    Request
		want string
	}{
		{"a", v4, "[10.1.1.1]"},
		{"b", v4, "[10.1.1.2]"},
		{"c", v4, "[] PoolExhausted: pool small has no IPv4 address left (2 of 2 in use)"},
		{"c", with(func(r *Request) { r.Named = []string{"none"} }), "[] NoMatchingPool: no pool that it may use has IPv4 addresses: pool none does not exist or is refused"},
		{"c", with(func(r *Request) { r.Wanted = []netip.Addr{addr("10.1.1.1")} }),
			"[] AddressConflict: it requests 10.1.1.1, which default/a has; Services share an address if both have the same sharing key"},
		{"c", with(func(r *Request) { r.Wanted = []netip.Addr{addr("10.1.1.0")} }), "[] NotInPool: it requests 10.1.1.0, which is reserved or excluded in pool small"},
		{"c", with(func(r *Request) { r.Wanted = []netip.Addr{addr("10.9.9.9")} }), "[] NotInPool: it requests 10.9.9.9, which is in no pool"},
		{"c", with(func(r *Request) { r.Wanted = []netip.Addr{addr("2001:db8::1")} }), "[] IPFamilyMismatch: it requests 2001:db8::1, but its families are IPv4"},
		{"c", with(func(r *Request) { r.Wanted, r.SharingKey = []netip.Addr{addr("10.1.2.9")}, "k" }), "[10.1.2.9]"},
		{"d", with(func(r *Request) { r.Wanted, r.SharingKey = []netip.Addr{addr("10.1.2.9")}, "k" }),
			"[] AddressConflict: it requests 10.1.2.9, where default/c has TCP 80"},
		{"d", with(func(r *Request) {
			r.Named, r.SharingKey, r.Ports = []string{"kept"}, "k", []Port{{service.TCP, 81, 90}}
		}), "[10.1.2.9]"},
		{"d", with(func(r *Request) { r.SharingKey, r.Ports = "k", []Port{{service.TCP, 80, 90}} }),
			"[10.1.2.9] PortOverlap: it shares 10.1.2.9 with default/c, which has TCP 80, too"},
		{"e", Request{Families: []Family{IPv4, IPv6}, Named: []string{"kept"}, Ports: web}, "[10.1.2.0] NoMatchingPool: no pool has IPv6 addresses"},
		{"f", Request{Families: []Family{IPv4, IPv6}, Required: true, Named: []string{"kept"}, Ports: web}, "[] NoMatchingPool: no pool has IPv6 addresses"},
		{"a", with(func(r *Request) {
			r.Named = []string{"small"}
			r.Barred = func(string) string { return "is not for namespace default" }
		}),
			"[10.1.1.1] PoolNotAllowed: it keeps 10.1.1.1 of pool small, which is not for namespace default"},
	} {
		if got := words(a.Assign(id(step.name), step.r)); got != step.want {
			t.Errorf("%s:\n got %s\nwant %s", step.name, got, step.want)
		}
	}
	a.SetPools(nil)
	if got := words(a.Assign(id("a"), v4)); got != "[10.1.1.1] AddressOutsidePools: it keeps 10.1.1.1, which is in no pool" {
		t.Error(got)
	}
}

func words(r Result) string {
	text := fmt.Sprint(r.Addrs)
	for _, f := range append(r.Missing, r.Odd...) {
		text += fmt.Sprintf(" %s: %s", f.Reason, f.Message)
	}
	return text
}

func TestRestoreLeavesAnAddressToTheFirst(t *testing.T) {
	a := New()
	a.SetPools([]Pool{{Name: "p", Addresses: ranges(t, "10.1.1.0/24")}})
	r := Request{Families: []Family{IPv4}, Ports: web, Current: []netip.Addr{addr("10.1.1.7"), addr("10.1.1.7")}}
	a.Restore(id("old"), r)
	a.Restore(id("young"), r)
	if got := words(a.Assign(id("young"), r)); got != "[10.1.1.0]" {
		t.Errorf("the young one has %s", got)
	}
	if got := words(a.Assign(id("old"), r)); got != "[10.1.1.7]" {
		t.Errorf("the old one has %s", got)
	}
}

// BenchmarkAssign allocates one more address among 50,000 and releases it each time. The
// variant with holes everywhere is the worst case for a search.
func BenchmarkAssign(b *testing.B) {
	for _, pool := range []string{"10.1.0.0/16", "2001:db8::/64"} {
		for _, holes := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/holes=%t", pool, holes), func(b *testing.B) {
				a := New()
				a.SetPools([]Pool{{Name: "p", Addresses: ranges(b, pool)}})
				r := Request{Families: []Family{FamilyOf(ranges(b, pool)[0].First)}, Ports: web}
				for i := range 50_000 {
					a.Assign(id(fmt.Sprint(i)), r)
				}
				for i := 0; holes && i < 50_000; i += 2 {
					a.Release(id(fmt.Sprint(i)))
				}
				for b.Loop() {
					if len(a.Assign(id("more"), r).Addrs) != 1 {
						b.Fatal("no address")
					}
					a.Release(id("more"))
				}
			})
		}
	}
}

// BenchmarkRestore measures a start with 50,000 Services, in an order unrelated to their
// addresses.
func BenchmarkRestore(b *testing.B) {
	pools := []Pool{{Name: "p", Addresses: ranges(b, "10.1.0.0/16")}}
	for b.Loop() {
		a := New()
		for i := range 50_000 {
			n := i * 40_503 % 65_536
			has := netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})
			a.Restore(id(fmt.Sprint(i)), Request{Families: []Family{IPv4}, Ports: web, Current: []netip.Addr{has}})
		}
		a.SetPools(pools)
	}
}

// TestLeaving checks that an address that a Service no longer has is not given to another
// Service before it is settled, however it is requested.
func TestLeaving(t *testing.T) {
	a := New()
	a.SetPools([]Pool{{Name: "p", Addresses: ranges(t, "10.1.1.0/30")}})
	ask := func(name, key string, port uint16, wanted ...string) string {
		r := Request{Families: []Family{IPv4}, SharingKey: key, Ports: []Port{{service.TCP, port, port}}, Barred: func(string) string { return "" }}
		for _, w := range wanted {
			r.Wanted = append(r.Wanted, addr(w))
		}
		res := a.Assign(id(name), r)
		return fmt.Sprint(res.Addrs, reasons(res.Missing))
	}
	want := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	want(ask("a", "k", 80), "[10.1.1.0] []")
	want(ask("a", "k", 80, "10.1.1.3"), "[10.1.1.3] []")
	want(ask("b", "", 80, "10.1.1.0"), "[] [AddressConflict]")
	want(ask("b", "k", 81, "10.1.1.0"), "[] [AddressConflict]")
	want(ask("b", "", 80), "[10.1.1.1] []")
	want(ask("a", "k", 82), "[10.1.1.3] []") // another port does not settle anything
	want(ask("c", "k", 83), "[10.1.1.3] []")
	want(ask("d", "", 80), "[10.1.1.2] []")
	want(ask("e", "", 80), "[] [PoolExhausted]")
	want(fmt.Sprint(a.Leaving(id("a"))), "[10.1.1.0]")
	if u, _ := a.Usage("p"); u[IPv4] != (Usage{4, 4, 0}) {
		t.Errorf("usage %v", u)
	}
	if a.Settle(id("b")) || !a.Settle(id("a")) || a.Settle(id("a")) {
		t.Error("not just what a left has become free")
	}
	want(ask("e", "", 80), "[10.1.1.0] []")
	want(ask("b", "", 80, "10.1.1.3"), "[10.1.1.1] [AddressConflict]")
}
