package bpfload_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/bpfload/layout"
)

// release is a release that pins a hash, an array and optionally another map, and attaches
// a program.
type release struct {
	name    string
	version int      // of the layouts
	fields  []string // fields of the values, eight bytes each
	extra   string   // an additional map
	// keeps means that it records its layouts. Earlier releases did not.
	keeps bool
}

var (
	before = release{name: "before records", version: 1, fields: []string{"a", "b"}}
	older  = release{name: "N", version: 1, fields: []string{"a", "b"}, keeps: true}
	newer  = release{name: "N+1", version: 2, fields: []string{"b", "new", "a"}, extra: "more", keeps: true}
)

var u64 = &btf.Int{Name: "u64", Size: 8}

func (r release) value() *btf.Struct {
	s := &btf.Struct{Name: "value", Size: uint32(8 * len(r.fields))}
	for i, name := range r.fields {
		s.Members = append(s.Members, btf.Member{Name: name, Type: u64, Offset: btf.Bits(64 * i)})
	}
	return s
}

func (r release) spec() *ebpf.CollectionSpec {
	u32 := &btf.Int{Name: "u32", Size: 4}
	s := &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{"scratch": {Name: "scratch", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1}},
		Programs: map[string]*ebpf.ProgramSpec{"pass": {
			Name: "pass", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
		}},
	}
	for name, kind := range map[string]ebpf.MapType{"hash": ebpf.Hash, "array": ebpf.Array} {
		s.Maps[name] = &ebpf.MapSpec{Name: name, Type: kind, KeySize: 4, ValueSize: r.value().Size, MaxEntries: 8, Key: u32, Value: r.value()}
	}
	if r.extra != "" {
		s.Maps[r.extra] = &ebpf.MapSpec{Name: r.extra, Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 8}
	}
	return s
}

func (r release) kept() bpfload.KeptMaps {
	kept := bpfload.KeptMaps{"hash": {Version: r.version, Written: true}, "array": {Version: r.version, Written: true}}
	if r.extra != "" {
		kept[r.extra] = bpfload.Kept{}
	}
	return kept
}

// history is what every release knows about the first layouts.
func history(t *testing.T) []byte {
	t.Helper()
	first, err := before.kept().Layouts(before.spec())
	if err != nil {
		t.Fatal(err)
	}
	h := layout.History{}
	h.Update(first)
	text, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// node is where releases replace each other, with one interface.
type node struct {
	t      *testing.T
	folder string
}

// agent is a release at some point of its start.
type agent struct {
	*node
	release
	object *ebpf.CollectionSpec
	state  *bpfload.State
	*ebpf.Collection
}

// steps are the steps of an agent's start, in order. It can be killed after each.
var steps = []func(a *agent){(*agent).open, (*agent).load, (*agent).carry, (*agent).replace, (*agent).attach, (*agent).settle}

// start runs the first count steps.
func (n *node) start(r release, count int) *agent {
	n.t.Helper()
	a := &agent{node: n, release: r}
	for _, do := range steps[:count] {
		do(a)
	}
	return a
}

func (n *node) run(r release) *agent { n.t.Helper(); return n.start(r, len(steps)) }

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (a *agent) open() {
	dir, err := bpffs.Open(a.folder)
	a.must(err)
	attached, err := bpfload.Attached(dir, "link_")
	a.must(err)
	a.must(dir.Close())
	spec := a.spec()
	if a.keeps {
		a.state, err = bpfload.OpenState(spec, bpfload.Source{Folder: a.folder, Maps: a.kept(), History: history(a.t), Attached: attached})
		a.must(err)
	} else {
		for _, m := range spec.Maps {
			m.Pinning = ebpf.PinByName
		}
	}
	a.object = spec
}

func (a *agent) load() {
	var err error
	a.Collection, err = ebpf.NewCollectionWithOptions(a.object, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: a.folder}})
	a.must(err)
	a.t.Cleanup(a.Collection.Close)
}

func (a *agent) carry() {
	if a.keeps {
		_, err := a.state.Carry()
		a.must(err)
	}
}

func (a *agent) replace() {
	if a.keeps {
		a.must(a.state.Replace(a.Programs["pass"]))
	}
}

func (a *agent) attach() {
	pin := filepath.Join(a.folder, "link_lo")
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		lo, e := net.InterfaceByName("lo")
		a.must(e)
		l, err = link.AttachXDP(link.XDPOptions{Program: a.Programs["pass"], Interface: lo.Index, Flags: link.XDPGenericMode})
		a.must(err)
		a.must(l.Pin(pin))
		path := pin
		a.t.Cleanup(func() {
			if l, err := link.LoadPinnedLink(path, nil); err == nil {
				_ = l.Unpin()
				_ = l.Close()
			}
		})
	}
	a.must(err)
	a.must(l.Update(a.Programs["pass"]))
	a.must(l.Close())
}

func (a *agent) settle() {
	if a.keeps {
		a.must(a.state.Settle())
	}
}

// put writes an entry with the values of the fields a and b, as programs or the agent do.
func (a *agent) put(key uint32, first, second uint64) {
	a.t.Helper()
	value := make([]byte, 8*len(a.fields))
	for name, v := range map[string]uint64{"a": first, "b": second} {
		binary.NativeEndian.PutUint64(value[8*slices.Index(a.fields, name):], v)
	}
	for _, name := range []string{"hash", "array"} {
		a.must(a.Maps[name].Put(key, value))
	}
}

// shows prints the contents of a map: "1: a=2 b=3".
func (a *agent) shows(name string) string {
	a.t.Helper()
	all := map[uint32]string{}
	var key uint32
	var value []byte
	it := a.Maps[name].Iterate()
	for it.Next(&key, &value) {
		field := func(f string) uint64 { return binary.NativeEndian.Uint64(value[8*slices.Index(a.fields, f):]) }
		if one := fmt.Sprintf("a=%d b=%d", field("a"), field("b")); one != "a=0 b=0" {
			all[key] = fmt.Sprintf("%d: %s", key, one)
		}
	}
	a.must(it.Err())
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		lines = append(lines, all[key])
	}
	return strings.Join(lines, ", ")
}

func (a *agent) holds(want string) {
	a.t.Helper()
	for _, name := range []string{"hash", "array"} {
		if got := a.shows(name); got != want {
			a.t.Errorf("%s: the %s holds %q, want %q", a.name, name, got, want)
		}
	}
}

// pins lists the pins.
func (n *node) pins() string {
	n.t.Helper()
	entries, err := os.ReadDir(n.folder)
	n.must(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// TestForwardAndBack has a release with another layout take over, and the previous one
// return, with what both have written.
func TestForwardAndBack(t *testing.T) {
	for _, first := range []release{before, older} {
		t.Run("from "+first.name, func(t *testing.T) {
			n := &node{t, pinFolder(t)}
			a := n.run(first)
			a.put(1, 10, 11)
			a = n.run(newer)
			a.holds("1: a=10 b=11")
			a.put(2, 20, 21)
			if got, want := n.pins(), "array-2 hash-2 layouts link_lo more"; got != want {
				t.Errorf("N+1 leaves %q pinned, want %q", got, want)
			}
			a = n.run(newer)
			a.holds("1: a=10 b=11, 2: a=20 b=21")
			a = n.run(older)
			a.holds("1: a=10 b=11, 2: a=20 b=21")
			if got, want := n.pins(), "array hash layouts link_lo"; got != want {
				t.Errorf("N leaves %q pinned, want %q", got, want)
			}
			a.put(3, 30, 31)
			n.run(newer).holds("1: a=10 b=11, 2: a=20 b=21, 3: a=30 b=31")
		})
	}
}

// TestBackToAReleaseWithoutRecords has a release return that does not know about layouts:
// it starts with empty maps, and the next release gets what it has then.
func TestBackToAReleaseWithoutRecords(t *testing.T) {
	n := &node{t, pinFolder(t)}
	n.run(before).put(1, 10, 11)
	n.run(newer).holds("1: a=10 b=11")
	a := n.run(before)
	a.holds("")
	a.put(2, 20, 21)
	n.run(newer).holds("2: a=20 b=21")
}

// TestKilledWhileItTakesOver kills a release after each of its steps, repeatedly, and
// starts it or the previous one: nothing is lost.
func TestKilledWhileItTakesOver(t *testing.T) {
	for _, way := range [][2]release{{older, newer}, {before, newer}, {newer, older}} {
		for done := range len(steps) {
			for _, last := range way {
				if !last.keeps {
					continue // it cannot read what another has left
				}
				t.Run(fmt.Sprintf("%s to %s, killed after step %d, then %s", way[0].name, way[1].name, done, last.name), func(t *testing.T) {
					n := &node{t, pinFolder(t)}
					first := n.run(way[0])
					first.put(1, 10, 11)
					for range 3 {
						n.start(way[1], done)
					}
					first.put(2, 20, 21) // its programs are, or were just, attached
					want := "1: a=10 b=11, 2: a=20 b=21"
					a := n.run(last)
					if got := a.shows("hash"); got != want {
						t.Errorf("the hash holds %q, want %q", got, want)
					}
				})
			}
		}
	}
}

// TestEntriesThatComeMeanwhile has the previous programs add an entry after the copy.
func TestEntriesThatComeMeanwhile(t *testing.T) {
	n := &node{t, pinFolder(t)}
	first := n.run(older)
	first.put(1, 10, 11)
	a := n.start(newer, 5) // attached
	first.put(1, 12, 13)   // ours takes precedence
	first.put(2, 20, 21)
	a.settle()
	if got, want := a.shows("hash"), "1: a=10 b=11, 2: a=20 b=21"; got != want {
		t.Errorf("the hash holds %q, want %q", got, want)
	}
}

// TestEntriesThatChangeBeforeTheyAreUsed has the previous programs change entries after the
// copy, and the agent copy again.
func TestEntriesThatChangeBeforeTheyAreUsed(t *testing.T) {
	n := &node{t, pinFolder(t)}
	first := n.run(older)
	first.put(1, 10, 11)
	first.put(2, 20, 21)
	a := n.start(newer, 3) // copied
	first.put(1, 12, 13)
	first.put(3, 30, 31)
	a.put(2, 22, 23) // like an agent that reads its maps
	a.carry()
	if got, want := a.shows("array"), "1: a=12 b=13, 2: a=22 b=23, 3: a=30 b=31"; got != want {
		t.Errorf("the array holds %q, want %q", got, want)
	}
	if got, want := a.shows("hash"), "1: a=12 b=13, 2: a=20 b=21, 3: a=30 b=31"; got != want {
		t.Errorf("the hash holds %q, want %q", got, want)
	}
}

// TestUnpublishedLayout finds a map of the same version with another layout.
func TestUnpublishedLayout(t *testing.T) {
	n := &node{t, pinFolder(t)}
	n.run(newer).put(1, 10, 11)
	other := newer
	other.name, other.fields = "another N+1", []string{"a", "b", "c", "d"}
	n.run(other).holds("1: a=10 b=11")
	n.run(newer).holds("1: a=10 b=11")
}
