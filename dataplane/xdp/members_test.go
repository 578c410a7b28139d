package xdp

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/backendlist"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// mirrorOf reads map members, without the entry that says that lists lead.
func mirrorOf(t *testing.T, d *DataPlane) (all backendlist.Mirror, led bool) {
	t.Helper()
	all, err := d.lists.ReadMirror()
	must(t, err)
	_, led = all[backendlist.Lead]
	delete(all, backendlist.Lead)
	return all, led
}

// manyMembers are frontends of all kinds, with the same and with other backends.
func manyMembers() (all []desired.Frontend) {
	backends := []string{"172.16.5.1:80", "172.16.5.2:80", "172.16.5.3:80"}
	for i := range 5 {
		all = append(all, frontend(service.Tunnel, fmt.Sprintf("10.2.2.%d:80", i+1), service.TCP, backends...))
	}
	all[1].Backends = all[1].Backends[:2]
	all[2].Backends[0].Weight, all[2].Backends[2].MaxConns = 0, 7
	all[3].Survival = service.FlowTable
	return all
}

// listOf returns where the list of one of manyMembers is.
func listOf(t *testing.T, d *DataPlane, i int) (word uint64) {
	t.Helper()
	must(t, d.kernel.MemberIndex.Lookup(d.programmed[manyMembers()[i].Key].value.Id, &word))
	return word
}

// TestBuildsWithAndWithoutLists: a build without lists finds map members as it would have written it.
// What it changes there is what the next build with lists has.
func TestBuildsWithAndWithoutLists(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for _, f := range manyMembers() {
		upsert(t, d, f)
	}
	programmed := state(t, d)
	want := backendlist.Mirror{}
	for id, entries := range d.lists.All() {
		want.Add(id, entries)
	}
	if got, led := mirrorOf(t, d); !led || !maps.Equal(got, want) || len(got) != 14 {
		t.Errorf("map members has\n %v\nthe lists\n %v", got, want)
	}
	first := d.programmed[manyMembers()[0].Key]
	gone := bpf.BalancerMemberKey{Frontend: first.value.Id, Server: first.members[0].id}
	for range 2 { // a build that reads the map, and one that also changes it
		must(t, d.kernel.Members.Delete(backendlist.Lead))
		d = n.reopen(t, d)
		if got := state(t, d); got != programmed {
			t.Errorf("holds\n %s\nprogrammed\n %s", got, programmed)
		}
		if a, b := listOf(t, d, 0), listOf(t, d, 4); a != b {
			t.Errorf("equal lists are at %x and %x", a, b)
		}
		must(t, d.kernel.Members.Delete(gone))
		d = n.reopen(t, d) // the lists lead
		if got, _ := mirrorOf(t, d); !maps.Equal(got, want) {
			t.Errorf("map members has\n %v\nthe lists\n %v", got, want)
		}
	}
	must(t, d.kernel.Members.Delete(backendlist.Lead))
	must(t, d.kernel.Members.Delete(gone))
	d = n.reopen(t, d)
	if got := len(d.programmed[first.key].members); got != 2 {
		t.Errorf("%d members, without one that another build removed", got)
	}
}

// With too many backends, map members is empty, and the lists survive without it.
func TestTooManyForTheMirror(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxMembers = 8
	d := n.open(t, c)
	all := manyMembers()
	sizes := func() (sizes []int) {
		for _, f := range all[:3] {
			upsert(t, d, f)
			got, led := mirrorOf(t, d)
			if !led {
				t.Error("the lists do not lead")
			}
			sizes = append(sizes, len(got))
		}
		return sizes
	}
	if got := sizes(); !slices.Equal(got, []int{3, 5, 0}) {
		t.Errorf("map members has %v entries", got)
	}
	programmed := state(t, d)
	d = n.reopen(t, d)
	if got := state(t, d); got != programmed {
		t.Errorf("holds\n %s\nprogrammed\n %s", got, programmed)
	}
	must(t, d.Delete(all[2].Key))
	d = n.reopen(t, d)
	if got, _ := mirrorOf(t, d); len(got) != 5 {
		t.Errorf("with fewer backends, map members has %d entries", len(got))
	}
}

// An agent dies after a list has changed, and before map members has.
func TestDeathBeforeTheMirror(t *testing.T) {
	for name, led := range map[string]bool{"the lists lead": true, "the map leads": false} {
		t.Run(name, func(t *testing.T) {
			n := newNet(t)
			d := n.open(t, config())
			upsert(t, d, frontendAfter)
			newState, newWhere := state(t, d), where(t, n, d)
			upsert(t, d, frontendBefore)
			c, err := d.plan(frontendAfter, nil)
			must(t, err)
			must(t, d.write(c))
			must(t, d.commit(c))
			if err := broken(t, &d.kernel.Members, func() error { return d.finishMembers(c) }); err == nil {
				t.Fatal("the map is written")
			}
			if !led {
				must(t, d.kernel.Members.Delete(backendlist.Lead))
			}
			d = n.reopen(t, d)
			if where(t, n, d) != newWhere {
				t.Error("traffic goes elsewhere")
			}
			upsert(t, d, frontendAfter)
			if got := state(t, d); got != newState {
				t.Errorf("holds\n %s\nwant\n %s", got, newState)
			}
		})
	}
}
