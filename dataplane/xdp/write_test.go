package xdp

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// state is what the kernel has: as listed, and how much of everything is in use, which
// shows leftovers.
func state(t *testing.T, d *DataPlane) string {
	t.Helper()
	list, err := d.List()
	must(t, err)
	servers, err := d.readServers()
	must(t, err)
	members := 0
	for _, of := range d.lists.All() {
		members += len(of)
	}
	_, vips, err := d.readFrontends()
	must(t, err)
	return fmt.Sprintf("%s VIPs %d bits %d servers %d members %d slots %d ranges %d", show(list...), len(vips), d.bits.Count(),
		len(servers.byID), members, takenSlots(d), d.ranges.Taken())
}

// takenSlots counts the slots that some frontend has.
func takenSlots(d *DataPlane) uint32 {
	_, slots := d.rings.Usage()
	return slots
}

// show prints whole frontends, not only their keys, as fmt would.
func show(list ...desired.Frontend) string {
	var all []string
	for _, f := range list {
		s := fmt.Sprintf("%s %s %s %s %d %q %s:", f.Key, f.Method, f.Encapsulation, f.Scheduler, f.RingSize, f.Survival, f.Affinity)
		for _, b := range f.Backends {
			s += fmt.Sprintf(" %s*%d", b.Addr, b.Weight)
			if b.MaxConns > 0 || !b.Since.IsZero() {
				s += fmt.Sprintf("(%d, %s)", b.MaxConns, b.Since.UTC())
			}
		}
		all = append(all, s)
	}
	return strings.Join(all, "\n ")
}

// listed is the output of show for List.
func listed(t *testing.T, d *DataPlane) string {
	t.Helper()
	list, err := d.List()
	must(t, err)
	return show(list...)
}

// where returns the backends of some flows.
func where(t *testing.T, n *testNet, d *DataPlane) string {
	t.Helper()
	var all []string
	for port := 1024; port < 1064; port++ {
		in := packet{src: fmt.Sprintf("192.168.0.2:%d", port), dst: vips[false]}
		v, out := n.run(t, d, in.bytes(t))
		all = append(all, fmt.Sprintf("%v %x", v, out[30:34]))
	}
	return strings.Join(all, "\n")
}

var (
	frontendBefore = frontend(service.Tunnel, vips[false], service.TCP, "172.16.5.1:80", "172.16.5.2:80", "172.16.5.3:80")
	frontendAfter  = frontend(service.Tunnel, vips[false], service.TCP, "172.16.5.2:80", "172.16.5.3:80", "172.16.5.4:80")
	frontendOther  = frontend(service.DSRNAT, vips[false], service.TCP, "172.16.5.2:80", "172.16.5.9:80")
)

func init() { frontendOther.RingSize = 509 }

func TestRefusalsLeaveTheOld(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxBackends, c.MaxFrontends = 4, 2
	d := n.open(t, c)
	upsert(t, d, frontendBefore)
	programmed, went := state(t, d), where(t, n, d)
	with := func(change func(*desired.Frontend)) desired.Frontend {
		f := frontendAfter
		change(&f)
		return f
	}
	for says, f := range map[string]desired.Frontend{
		"is not a prime":    with(func(f *desired.Frontend) { f.RingSize = 250 }),
		"MaxBackends":       frontend(service.Tunnel, vips[false], service.TCP, "172.16.6.1:1", "172.16.6.2:1"),
		"no backends":       with(func(f *desired.Frontend) { f.Backends = nil }),
		"nat44":             with(func(f *desired.Frontend) { f.Method = "nat44" }),
		"lblc":              with(func(f *desired.Frontend) { f.Scheduler = "lblc" }),
		"protocol(1)":       with(func(f *desired.Frontend) { f.Protocol = 1 }),
		"another IP family": frontend(service.FullNAT, vips[false], service.TCP, servers[true]),
		"both IP families":  frontend(service.Tunnel, vips[false], service.TCP, servers[true], servers[false]),
		"ring size":         with(func(f *desired.Frontend) { f.RingSize = -1 }),
	} {
		err := d.Upsert(f)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: refused with %v", says, err)
		}
		if got := where(t, n, d); got != went {
			t.Errorf("%s: traffic changed", says)
		}
		must(t, d.Delete(service.Key{VIP: own4, Port: 1, Protocol: service.TCP})) // heals
		upsert(t, d, frontendBefore)
		if got := state(t, d); got != programmed {
			t.Errorf("%s: holds\n %s\nprogrammed\n %s", says, got, programmed)
		}
	}
	upsert(t, d, frontend(service.Tunnel, "10.1.1.7:80", service.TCP, "172.16.6.1:1"))
	if err := d.Upsert(frontend(service.Tunnel, "10.1.1.8:80", service.TCP, "172.16.6.1:1")); err == nil || !strings.Contains(err.Error(), "MaxFrontends") {
		t.Errorf("a frontend too many: %v", err)
	}
}

// TestNoRoomForMembers: a change that exceeds the total number of members is rejected
// before anything is written, so that the next call need not read the kernel again.
// Frontends come, change and go while others are rejected.
func TestNoRoomForMembers(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxMembers = 4
	d := n.open(t, c)
	full := func(vip string, servers ...string) {
		t.Helper()
		programmed := state(t, d)
		err := d.Upsert(frontend(service.Tunnel, vip, service.TCP, servers...))
		if err == nil || !strings.Contains(err.Error(), "more than 4 backends (MaxMembers)") {
			t.Fatalf("%s with %d servers: %v", vip, len(servers), err)
		}
		if d.stale || state(t, d) != programmed {
			t.Errorf("%s is refused; stale: %v; holds\n %s\nprogrammed\n %s", vip, d.stale, state(t, d), programmed)
		}
	}
	upsert(t, d, frontend(service.Tunnel, "10.1.1.1:80", service.TCP, "172.16.6.1:1", "172.16.6.2:1"))
	full("10.1.1.2:80", "172.16.6.1:1", "172.16.6.2:1", "172.16.6.3:1")
	upsert(t, d, frontend(service.Tunnel, "10.1.1.3:80", service.TCP, "172.16.6.1:1"))
	full("10.1.1.3:80", "172.16.6.2:1", "172.16.6.3:1") // its new members coexist with the old ones for a while
	upsert(t, d, frontend(service.Tunnel, "10.1.1.3:80", service.TCP, "172.16.6.4:1"))
	must(t, d.Delete(frontend(service.Tunnel, "10.1.1.1:80", service.TCP).Key))
	upsert(t, d, frontend(service.Tunnel, "10.1.1.2:80", service.TCP, "172.16.6.1:1", "172.16.6.2:1", "172.16.6.3:1"))
	full("10.1.1.1:80", "172.16.6.1:1")
	must(t, d.Close())
	d = n.open(t, c) // it counts what it finds
	full("10.1.1.1:80", "172.16.6.1:1")
}

// mapsOf returns each map of the data plane, to be replaced by a closed one: every call
// to it then fails.
func mapsOf(d *DataPlane) map[string]**ebpf.Map {
	out := map[string]**ebpf.Map{}
	v := reflect.ValueOf(&d.kernel.BalancerMaps).Elem()
	for i := range v.NumField() {
		out[v.Type().Field(i).Name] = v.Field(i).Addr().Interface().(**ebpf.Map)
	}
	return out
}

// Whichever map fails during a change, traffic sees the old or the new state, and the
// next call completes the new one with no leftovers.
func TestFaults(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	changes := map[string][2]desired.Frontend{
		"ring": {frontendBefore, frontendAfter}, "all": {frontendBefore, frontendOther},
	}
	for kind, change := range changes {
		for name, m := range mapsOf(d) {
			upsert(t, d, change[1])
			newState, newWhere := state(t, d), where(t, n, d)
			upsert(t, d, change[0])
			oldWhere := where(t, n, d)

			failed := broken(t, m, func() error { return d.Upsert(change[1]) })

			// The second may depend on the ring before, the first does not.
			if got := where(t, n, d); got != oldWhere && got != newWhere {
				t.Errorf("%s, %s broken (%v): traffic sees neither the old nor the new:\n%s", kind, name, failed, got)
			}
			upsert(t, d, change[1])
			if got := state(t, d); got != newState {
				t.Errorf("%s, %s broken (%v): holds then\n %s\nwant\n %s", kind, name, failed, got, newState)
			}
		}
	}
	for name, m := range mapsOf(d) {
		upsert(t, d, frontendBefore)
		_ = broken(t, m, func() error { return d.Delete(frontendBefore.Key) }) // may or may not fail
		must(t, d.Delete(frontendBefore.Key))
		if got := state(t, d); got != " VIPs 0 bits 2 servers 0 members 0 slots 0 ranges 0" {
			t.Errorf("delete, %s broken: leaves %s", name, got)
		}
	}
}

// broken closes a map while do runs: every call to it then fails.
func broken(t *testing.T, m **ebpf.Map, do func() error) error {
	t.Helper()
	whole := *m
	closed, err := whole.Clone()
	must(t, err)
	must(t, closed.Close())
	*m = closed
	defer func() { *m = whole }()
	return do()
}

// A map may fail in any single step, after the steps before have succeeded: traffic sees
// the state before or after the change, and the next call completes it with no leftovers.
func TestFaultsInEveryStep(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	steps := []func(*change) error{d.write, d.commit, d.finish}
	faults := make([]int, len(steps))
	for kind, next := range map[string]desired.Frontend{"ring": frontendAfter, "all": frontendOther} {
		for name, m := range mapsOf(d) {
			for at := range steps {
				upsert(t, d, next)
				newState, newWhere := state(t, d), where(t, n, d)
				upsert(t, d, frontendBefore)
				oldWhere := where(t, n, d)

				c, err := d.plan(next, nil)
				must(t, err)
				for _, step := range steps[:at] {
					must(t, step(c))
				}
				d.stale = true // as apply does after a failure, and an agent that starts
				if err := broken(t, m, func() error { return steps[at](c) }); err != nil {
					faults[at]++
				}
				if got := where(t, n, d); at == 0 && got != oldWhere || at == 2 && got != newWhere || got != oldWhere && got != newWhere {
					t.Errorf("%s, %s broken in step %d: traffic sees neither the old nor the new:\n%s", kind, name, at, got)
				}
				upsert(t, d, next)
				if got := state(t, d); got != newState {
					t.Errorf("%s, %s broken in step %d: holds then\n %s\nwant\n %s", kind, name, at, got, newState)
				}
			}
		}
	}
	if slices.Contains(faults, 0) {
		t.Errorf("a step never fails: %v", faults)
	}
}

// An agent dies during a change: its successor finds the old or the new state, and
// removes leftovers.
func TestDeathInTheMiddle(t *testing.T) {
	for name, committed := range map[string]bool{"before": false, "after": true} {
		for kind, next := range map[string]desired.Frontend{"ring": frontendAfter, "all": frontendOther} {
			t.Run(name+" "+kind, func(t *testing.T) {
				n := newNet(t)
				d := n.open(t, config())
				upsert(t, d, next)
				newState, newWhere := state(t, d), where(t, n, d)
				upsert(t, d, frontendBefore)
				oldList, oldWhere := listed(t, d), where(t, n, d)

				c, err := d.plan(next, nil)
				must(t, err)
				must(t, d.write(c))
				if committed {
					must(t, d.commit(c))
				}
				must(t, d.Close())
				d = n.open(t, config())
				want := oldWhere
				if committed {
					want = newWhere
				}
				if got := where(t, n, d); got != want {
					t.Error("traffic goes elsewhere")
				}
				if got := listed(t, d); !committed && got != oldList {
					t.Errorf("lists %s, want %s", got, oldList)
				} else if committed && got == show(next) {
					t.Error("lists the new, though it is not settled")
				}
				upsert(t, d, next)
				if got := state(t, d); got != newState {
					t.Errorf("holds\n %s\nwant\n %s", got, newState)
				}
			})
		}
	}
}

// What another process removes from the kernel is missing in List and is restored by
// Upsert.
func TestHealsWhatWasRemoved(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontendBefore)
	programmed, went := state(t, d), where(t, n, d)
	must(t, d.kernel.Frontends.Delete(entry.ToKey(frontendBefore.Key)))
	if list, err := d.List(); err != nil || len(list) != 0 {
		t.Errorf("lists %v, %v", list, err)
	}
	upsert(t, d, frontendBefore)
	if got := state(t, d); got != programmed {
		t.Errorf("holds\n %s\nprogrammed\n %s", got, programmed)
	}
	must(t, d.kernel.Rings.Delete(d.programmed[frontendBefore.Key].value.Segment))
	upsert(t, d, frontendBefore)
	if got := where(t, n, d); got != went {
		t.Error("the ring did not come back")
	}
}

// Reserve grows the memory of rings once, for exactly what is programmed next.
func TestReserve(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	var all []desired.Frontend
	for i := range 32 {
		f := frontend(service.Tunnel, fmt.Sprintf("10.2.0.%d:80", i+1), service.TCP, fmt.Sprintf("172.16.5.%d:80", i+1))
		g := frontend(service.Tunnel, fmt.Sprintf("10.2.1.%d:80", i+1), service.TCP, fmt.Sprintf("172.16.5.%d:80", i+1)) // shares its ring
		f.RingSize, g.RingSize = 16381, 16381
		all = append(all, f, g)
	}
	must(t, d.Reserve(append(slices.Clone(all), desired.Frontend{}))) // one that is rejected needs no room
	reserved, taken := d.rings.Usage()
	if reserved != 2 || taken != 0 { // 16 rings fit into a segment
		t.Fatalf("%d segments, %d slots taken", reserved, taken)
	}
	for _, f := range all {
		upsert(t, d, f)
	}
	if now, _ := d.rings.Usage(); now != reserved {
		t.Errorf("%d segments, %d were reserved", now, reserved)
	}
	must(t, d.Reserve(all)) // already programmed
	if now, _ := d.rings.Usage(); now != reserved {
		t.Errorf("%d segments after all are programmed, %d were reserved", now, reserved)
	}
}
