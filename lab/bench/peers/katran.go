package peers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/bench/xdpbench"
)

// Katran's constants (katran/lib/bpf/balancer_consts.h).
const (
	katranRing    = 65537 // RING_SIZE
	katranVIPs    = 512   // MAX_VIPS, unless more are needed
	katranReals   = 4096  // MAX_REALS, unless more are needed
	katranBypassF = 1 << 1
)

// sampled is the number of VIPs whose tables are written as Katran's control plane writes
// them. Those of the others are copied through memory, because all of them take minutes.
const sampled = 200

func katranSource(from string) string {
	return filepath.Join(from, "katran", "lib", "bpf", "balancer.bpf.c")
}

// katran builds and loads Katran's program.
type katran struct{ from, folder string }

// programs returns Katran with its flow table and, on the same tables of backends,
// without (F_LRU_BYPASS).
func (k katran) programs(ctx context.Context, s scenario, n *xdpbench.Network) (all []*program, err error) {
	object, err := k.compile(ctx, s)
	if err != nil {
		return nil, err
	}
	var shared katranMaps
	for _, name := range []string{katranFlows, katranBypass} {
		spec, err := ebpf.LoadCollectionSpec(object)
		if err != nil {
			return all, fmt.Errorf("%s: %w", name, err)
		}
		spec.Maps["ch_rings"].Flags |= unix.BPF_F_MMAPABLE
		p := &program{name: name, in: n.Balancer, table: name == katranFlows}
		all = append(all, p)
		maps, err := newKatranMaps(spec, shared)
		for _, m := range maps {
			p.open = append(p.open, m)
		}
		if err != nil {
			return all, fmt.Errorf("%s: %w", name, err)
		}
		if err := p.katran(spec, maps, s, shared == nil, n.NIC); err != nil {
			return all, fmt.Errorf("%s: %w", name, err)
		}
		shared = maps
	}
	return all, nil
}

// compile compiles Katran for a scenario, without the limit of new connections, beyond
// which it does not learn flows.
func (k katran) compile(ctx context.Context, s scenario) (object string, err error) {
	object = filepath.Join(k.folder, fmt.Sprintf("katran%d.o", s.vips))
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	cmd := exec.CommandContext(ctx, cmp.Or(os.Getenv("BPF_CLANG"), "clang-19"), "-O2", "-g", "-w", "-target", "bpf", "-D__KERNEL__", "-D__"+machine+"__",
		"-DMAX_CONN_RATE=4e9", fmt.Sprintf("-DMAX_VIPS=%d", max(katranVIPs, s.vips)), fmt.Sprintf("-DMAX_REALS=%d", max(katranReals, s.pool+1)),
		"-I"+k.from, "-I"+filepath.Join(k.from, "katran/lib/linux_includes"), "-I"+filepath.Join(k.from, "katran/lib/bpf"),
		"-I/usr/include/"+machine+"-linux-gnu", "-c", katranSource(k.from), "-o", object)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("compile Katran: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return object, nil
}

// katranMaps are Katran's maps by name.
type katranMaps map[string]*ebpf.Map

// newKatranMaps creates the maps. Those of backends are taken from shared if it is not nil.
func newKatranMaps(spec *ebpf.CollectionSpec, shared katranMaps) (maps katranMaps, err error) {
	maps = katranMaps{}
	for name, s := range spec.Maps {
		if strings.HasPrefix(name, ".") {
			continue
		}
		if from := shared[name]; from != nil && (name == "ch_rings" || name == "reals") {
			maps[name], err = from.Clone()
		} else {
			maps[name], err = ebpf.NewMap(s)
		}
		if err != nil {
			delete(maps, name)
			return maps, fmt.Errorf("map %s: %w", name, err)
		}
	}
	return maps, nil
}

// katran fills the maps, and loads the program on them. The first one fills the tables of
// backends, too.
func (p *program) katran(spec *ebpf.CollectionSpec, maps katranMaps, s scenario, first bool, nic int) (err error) {
	flags := uint32(katranBypassF)
	if p.table {
		flags = 0
	}
	took, err := maps.fill(s, flags, first)
	if err != nil {
		return err
	}
	flows, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 40, ValueSize: 16, MaxEntries: uint32(s.size.flowTable)})
	if err != nil {
		return err
	}
	p.open = append(p.open, flows)
	for cpu := range min(ebpf.MustPossibleCPU(), int(maps["lru_mapping"].MaxEntries())) {
		if err := maps["lru_mapping"].Put(uint32(cpu), flows); err != nil {
			return err
		}
	}
	if p.rig, err = xdpbench.ForeignRig(spec, "balancer_ingress", maps, nic); err != nil {
		return err
	}
	p.open = append(p.open, p.rig)
	if p.table {
		p.begun = func() (uint64, error) { return maps.missed(max(katranVIPs, s.vips)) }
	}
	if !first {
		return nil
	}
	p.cost = &cost{
		filled: took, note: fmt.Sprintf("only the writes of finished tables, in batches; measured for %d VIPs and multiplied", min(s.vips, sampled)),
		tables: func() (uint64, error) {
			return memory(maps["vip_map"], maps["ch_rings"], maps["reals"], maps["stats"], maps["reals_stats"], maps["lru_miss_stats"])
		},
		flows:  func() (uint64, error) { return memory(flows) },
		change: maps.change,
	}
	return nil
}

// fill writes everything that a packet needs, and returns how long the tables of backends
// took.
func (m katranMaps) fill(s scenario, flags uint32, rings bool) (took time.Duration, err error) {
	if err := m["ctl_array"].Put(uint32(0), []byte{2, 0, 0, 0, 0, 9, 0, 0}); err != nil {
		return 0, err
	}
	began := time.Now()
	for i := range s.vips {
		addr := xdpbench.VIP(i).As4()
		key := [20]byte{0: addr[0], addr[1], addr[2], addr[3], 17: 80, 18: 6}
		meta := binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, flags), uint32(i))
		if err := m["vip_map"].Put(key[:], meta); err != nil {
			return 0, err
		}
	}
	vips := time.Since(began)
	if !rings {
		return 0, nil
	}
	for i := range s.pool {
		addr := xdpbench.Backend(i).As4()
		if err := m["reals"].Put(uint32(i+1), append(addr[:], make([]byte, 16)...)); err != nil {
			return 0, err
		}
	}
	tables, err := m.fillRings(s)
	return vips + tables, err
}

// fillRings writes the tables of backends, and returns how long it would have taken to
// write all of them as those of the first VIPs.
func (m katranMaps) fillRings(s scenario) (time.Duration, error) {
	keys, values := make([]uint32, katranRing), make([]uint32, katranRing)
	owners := func(vip int, put func(slot int, real uint32)) {
		backends := s.backendsOf(vip)
		for slot := range katranRing {
			put(slot, uint32(backends[slot*7919%len(backends)]+1))
		}
	}
	var took time.Duration
	some := min(s.vips, sampled)
	for vip := range some {
		owners(vip, func(slot int, real uint32) { keys[slot], values[slot] = uint32(vip*katranRing+slot), real })
		began := time.Now()
		if _, err := m["ch_rings"].BatchUpdate(keys, values, nil); err != nil {
			return 0, err
		}
		took += time.Since(began)
	}
	if some == s.vips {
		return took, nil
	}
	memory, err := unix.Mmap(m["ch_rings"].FD(), 0, s.vips*katranRing*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("map the tables into memory: %w", err)
	}
	slots := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(memory))), 2*s.vips*katranRing)
	for vip := some; vip < s.vips; vip++ {
		owners(vip, func(slot int, real uint32) { slots[2*(vip*katranRing+slot)] = real })
	}
	return took * time.Duration(s.vips) / time.Duration(some), unix.Munmap(memory)
}

// change writes the slots of one backend of a hundred of a VIP.
func (m katranMaps) change(vip int) error {
	keys, values := make([]uint32, katranRing/100), make([]uint32, katranRing/100)
	for i := range keys {
		keys[i], values[i] = uint32(vip*katranRing+i*100), 1+uint32(i%2)
	}
	_, err := m["ch_rings"].BatchUpdate(keys, values, nil)
	return err
}

// missed returns the number of packets whose flow was not in the flow table.
func (m katranMaps) missed(vips int) (sum uint64, err error) {
	var all []struct{ Packets, Missed uint64 }
	err = m["stats"].Lookup(uint32(vips), &all) // MAX_VIPS + LRU_CNTRS
	for _, n := range all {
		sum += n.Missed
	}
	return sum, err
}
