package packetfuzz

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Object is a second, instrumented copy of programs that an agent has loaded. It uses the
// maps that this agent writes, and its own maps for what packets change.
type Object struct {
	*ebpf.Collection
	Spec    *ebpf.CollectionSpec
	Control *Control
	// Coverage has a byte for each basic block.
	Coverage []byte
	// Blocks are the counted blocks, Skipped is the number of others.
	Blocks  []Block
	Skipped int
}

// Load loads an object. live are the maps of the agent's program, by name. Those in
// private are created instead, as change has modified them in spec; per-CPU maps become
// plain arrays. The other constants and settings are the agent's.
func Load(spec *ebpf.CollectionSpec, live map[string]*ebpf.Map, private []string, change func(*ebpf.CollectionSpec) error) (*Object, error) {
	return load(spec, live, private, change, false)
}

// LoadWithTCIndex is Load for programs that read or write skb->tc_index (Control.TCIndex).
func LoadWithTCIndex(spec *ebpf.CollectionSpec, live map[string]*ebpf.Map, private []string, change func(*ebpf.CollectionSpec) error) (*Object, error) {
	return load(spec, live, private, change, true)
}

func load(spec *ebpf.CollectionSpec, live map[string]*ebpf.Map, private []string, change func(*ebpf.CollectionSpec) error, tcIndex bool) (*Object, error) {
	o := &Object{Spec: spec}
	if err := takeConstants(spec, live); err != nil {
		return nil, err
	}
	replace(spec, live) // change may make the private ones smaller
	if err := change(spec); err != nil {
		return nil, err
	}
	sizes := map[string]uint32{}
	for _, name := range private {
		if m := spec.Maps[name]; m != nil {
			oneForAll(m)
			sizes[name] = m.MaxEntries
		}
	}
	var err error
	if o.Blocks, o.Skipped, err = Instrument(spec, tcIndex); err != nil {
		return nil, err
	}
	shared := replace(spec, live)
	for name, size := range sizes {
		delete(shared, name)
		spec.Maps[name].MaxEntries = size
	}
	o.Collection, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, fmt.Errorf("load the instrumented programs: %w", err)
	}
	control, err := Memory(o.Maps[controlMap])
	if err != nil {
		return nil, err
	}
	o.Control = (*Control)(unsafe.Pointer(&control[0]))
	o.Coverage, err = Memory(o.Maps[coverageMap])
	return o, err
}

// replace gives maps the sizes of the agent's maps, which it returns by the names in spec.
func replace(spec *ebpf.CollectionSpec, live map[string]*ebpf.Map) map[string]*ebpf.Map {
	shared := map[string]*ebpf.Map{}
	for name, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
		if there := live[short(name)]; there != nil && !strings.HasPrefix(name, ".rodata") {
			shared[name] = there
			m.MaxEntries = there.MaxEntries()
		}
	}
	return shared
}

// oneForAll turns a per-CPU array into a plain array, which can be mmapped: there is one
// thread. Programs use both in the same way.
func oneForAll(m *ebpf.MapSpec) {
	if m.Type == ebpf.PerCPUArray {
		m.Type = ebpf.Array
		m.Flags |= mmapable
	}
}

// short is a map's name as truncated by the kernel.
func short(name string) string { return name[:min(len(name), 15)] }

// takeConstants copies the constants with which the agent's program was loaded.
func takeConstants(spec *ebpf.CollectionSpec, live map[string]*ebpf.Map) error {
	for name, v := range spec.Variables {
		there := live[short(v.SectionName)]
		if !strings.HasPrefix(v.SectionName, ".rodata") || there == nil {
			continue
		}
		section, err := there.LookupBytes(uint32(0))
		if err != nil {
			return fmt.Errorf("read %s: %w", v.SectionName, err)
		}
		if int(v.Offset+v.Size()) > len(section) {
			return fmt.Errorf("%s of the agent's program ends before %s", v.SectionName, name)
		}
		if err := v.Set(section[v.Offset : v.Offset+v.Size()]); err != nil {
			return err
		}
	}
	return nil
}

// LiveMaps returns the maps of a program and of its tail call targets, by their names in
// the kernel.
func LiveMaps(id ebpf.ProgramID) (map[string]*ebpf.Map, error) {
	maps := map[string]*ebpf.Map{}
	return maps, addLiveMaps(maps, id)
}

func addLiveMaps(maps map[string]*ebpf.Map, id ebpf.ProgramID) error {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return err
	}
	ids, ok := info.MapIDs()
	if !ok {
		return errors.New("the kernel does not report the maps of a program")
	}
	for _, id := range ids {
		if err := addLiveMap(maps, id); err != nil {
			return err
		}
	}
	return nil
}

func addLiveMap(maps map[string]*ebpf.Map, id ebpf.MapID) error {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return err
	}
	info, err := m.Info()
	if err != nil {
		return err
	}
	name := strings.TrimRight(info.Name, "23456789") // the version of its layout
	if maps[name] != nil {
		return m.Close()
	}
	maps[name] = m
	if info.Type != ebpf.ProgramArray {
		return nil
	}
	for i := range info.MaxEntries {
		var next uint32
		if m.Lookup(i, &next) == nil {
			if err := addLiveMaps(maps, ebpf.ProgramID(next)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Layout contains the field offsets of a C struct. Models look fields up by name, so that
// a struct that grows needs no change of a model.
type Layout struct {
	Size   int
	fields map[string]int
}

// LayoutOf finds a struct. Fields of nested structs have names with a dot.
func LayoutOf(types *btf.Spec, name string) (Layout, error) {
	var s *btf.Struct
	if err := types.TypeByName(name, &s); err != nil {
		return Layout{}, fmt.Errorf("struct %s: %w", name, err)
	}
	l := Layout{Size: int(s.Size), fields: map[string]int{}}
	l.add("", 0, s.Members)
	return l, nil
}

func (l *Layout) add(prefix string, at int, members []btf.Member) {
	for _, m := range members {
		offset := at + int(m.Offset.Bytes())
		l.fields[prefix+m.Name] = offset
		if inner, ok := btf.UnderlyingType(m.Type).(*btf.Struct); ok {
			l.add(prefix+m.Name+".", offset, inner.Members)
		}
	}
}

// At returns a field's offset. It panics if the field is missing: the model is out of
// date.
func (l Layout) At(field string) int {
	at, ok := l.fields[field]
	if !ok {
		panic("no field " + field)
	}
	return at
}

// EnumOf returns the names of an enum's values, by value.
func EnumOf(types *btf.Spec, name string) (map[uint64]string, error) {
	var e *btf.Enum
	if err := types.TypeByName(name, &e); err != nil {
		return nil, fmt.Errorf("enum %s: %w", name, err)
	}
	names := map[uint64]string{}
	for _, v := range e.Values {
		names[v.Value] = v.Name
	}
	return names, nil
}

// ShareNotes makes an object that is loaded next share coverage and Control with another
// copy of the same programs.
func ShareNotes(live map[string]*ebpf.Map, with *Object) {
	for _, name := range []string{controlMap, coverageMap} {
		live[short(name)] = with.Maps[name]
	}
}
