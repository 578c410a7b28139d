package packetfuzz

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Route is the result of a route lookup in the kernel: the answer of bpf_fib_lookup.
type Route struct {
	Answer  int32 // BPF_FIB_LKUP_RET_*, or a negative error
	Ifindex uint32
	MTU     uint32
	To      [16]byte // the next hop: the destination itself or a router
	Source  [6]byte  // MAC addresses
	Dest    [6]byte
}

// NextHop returns the family and the address of the next hop, in that family's form and
// zero padded, as bpf_redirect_neigh takes them for a packet of a family.
func (r *Route) NextHop(v6 bool) (family uint32, to wire.Addr) {
	if wire.Addr(r.To).Is4() && !v6 {
		copy(to[:4], r.To[12:])
		return unix.AF_INET, to
	}
	return unix.AF_INET6, r.To
}

// Answers of bpf_fib_lookup (linux/bpf.h).
const (
	RouteFound         = 0
	RouteBlackhole     = 1
	RouteUnreachable   = 2
	RouteProhibit      = 3
	RouteNotForwarded  = 4
	RouteForwardingOff = 5
	RouteNoNeighbor    = 7
	RouteTooBig        = 8
)

// Routes looks up routes in the kernel of this thread's namespace, once for each
// destination, because the tables of a world do not change. The kernel, not a model,
// defines the routes.
type Routes struct {
	runner Runner
	oracle *ebpf.Program
	known  map[routeKey]*Route
}

type routeKey struct {
	ifindex uint32
	v6      bool
	dst     [16]byte
}

const fibParams = 64 // sizeof(struct bpf_fib_lookup)

// NewRoutes loads the program that does the lookups.
func NewRoutes() (*Routes, error) {
	// The frame is a struct bpf_fib_lookup; the answer is the verdict.
	var code asm.Instructions
	code = append(code,
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R8, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, fibParams),
		asm.JGT.Reg(asm.R1, asm.R8, "short"),
	)
	for i := int16(0); i < fibParams; i += 8 {
		code = append(code, asm.LoadMem(asm.R1, asm.R7, i, asm.DWord), asm.StoreMem(asm.R10, i-fibParams, asm.R1, asm.DWord))
	}
	code = append(code,
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -fibParams),
		asm.Mov.Imm(asm.R3, fibParams),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnFibLookup.Call(),
	)
	for i := int16(0); i < fibParams; i += 8 {
		code = append(code, asm.LoadMem(asm.R1, asm.R10, i-fibParams, asm.DWord), asm.StoreMem(asm.R7, i, asm.R1, asm.DWord))
	}
	code = append(code, asm.Return(), asm.Mov.Imm(asm.R0, -1).WithSymbol("short"), asm.Return())
	oracle, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "routes", Type: ebpf.XDP, Instructions: code, License: "GPL"})
	if err != nil {
		return nil, fmt.Errorf("load the program that looks up routes: %w", err)
	}
	return &Routes{oracle: oracle, known: map[routeKey]*Route{}}, nil
}

// Forget clears the cache when routes have changed.
func (r *Routes) Forget() { clear(r.known) }

// To returns the route of a packet from an interface to a destination, for any length;
// the maximum length is in MTU.
func (r *Routes) To(ifindex uint32, v6 bool, dst [16]byte) *Route {
	k := routeKey{ifindex, v6, dst}
	if way := r.known[k]; way != nil {
		return way
	}
	way := r.ask(k, 0)
	if long := r.ask(k, 0xffff); long.Answer == RouteTooBig {
		way.MTU = long.MTU // even if its next hop is not known
	}
	r.known[k] = way
	return way
}

// ask fills in a struct bpf_fib_lookup (linux/bpf.h) for a packet of a length; 0 means
// any.
func (r *Routes) ask(k routeKey, length uint16) *Route {
	var p [fibParams]byte
	const inet, inet6 = 2, 10
	p[0] = inet
	if k.v6 {
		p[0] = inet6
		copy(p[32:48], k.dst[:])
	} else {
		copy(p[32:36], k.dst[12:])
	}
	binary.NativeEndian.PutUint16(p[6:], length)
	binary.NativeEndian.PutUint32(p[8:], k.ifindex)
	answer, out, err := r.runner.Run(r.oracle.FD(), p[:], nil)
	if err != nil {
		panic(err)
	}
	way := &Route{Answer: answer, Ifindex: binary.NativeEndian.Uint32(out[8:]), MTU: uint32(binary.NativeEndian.Uint16(out[6:]))}
	copy(way.Source[:], out[52:])
	copy(way.Dest[:], out[58:])
	copy(way.To[:], out[32:48])
	if !k.v6 && out[0] == inet {
		way.To = [16]byte{10: 0xff, 11: 0xff, 12: out[32], 13: out[33], 14: out[34], 15: out[35]}
	}
	return way
}
