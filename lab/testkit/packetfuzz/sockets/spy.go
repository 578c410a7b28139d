package sockets

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// spy records an address as the programs get it, if it is attached before them, or as
// they leave it.
type spy struct {
	memory []byte
	links  []link.Link
}

// What a spy writes: how often it was called, and the address.
const (
	spyCalls  = 0
	spyAddr   = 4 // 16 bytes, for IPv4 the first four
	spyPort   = 20
	spyFamily = 24 // 4 or 6
	spySize   = 28
)

// Offsets in struct bpf_sock_addr (linux/bpf.h).
const (
	userIP4  = 4
	userIP6  = 8
	userPort = 24
)

func newSpy(cgroup string) (*spy, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "spy", Type: ebpf.Array, KeySize: 4, ValueSize: spySize, MaxEntries: 1, Flags: 1 << 10})
	if err != nil {
		return nil, err
	}
	s := &spy{}
	if s.memory, err = packetfuzz.Memory(m); err != nil {
		return nil, err
	}
	for at, v6 := range map[ebpf.AttachType]bool{
		ebpf.AttachCGroupInet4Connect: false, ebpf.AttachCGroupInet6Connect: true,
		ebpf.AttachCGroupUDP4Sendmsg: false, ebpf.AttachCGroupUDP6Sendmsg: true,
	} {
		code := asm.Instructions{asm.LoadMapValue(asm.R2, m.FD(), 0)}
		copyWord := func(from, to int16) {
			code = append(code, asm.LoadMem(asm.R3, asm.R1, from, asm.Word), asm.StoreMem(asm.R2, to, asm.R3, asm.Word))
		}
		if v6 {
			for i := int16(0); i < 16; i += 4 {
				copyWord(userIP6+i, spyAddr+i)
			}
		} else {
			copyWord(userIP4, spyAddr)
		}
		copyWord(userPort, spyPort)
		family := int64(4)
		if v6 {
			family = 6
		}
		code = append(code,
			asm.LoadMem(asm.R3, asm.R2, spyCalls, asm.Word), asm.Add.Imm(asm.R3, 1), asm.StoreMem(asm.R2, spyCalls, asm.R3, asm.Word),
			asm.StoreImm(asm.R2, spyFamily, family, asm.Word),
			asm.Mov.Imm(asm.R0, 1), asm.Return())
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "spy", Type: ebpf.CGroupSockAddr, AttachType: at, Instructions: code, License: "GPL"})
		if err != nil {
			return s, fmt.Errorf("load a spy: %w", err)
		}
		l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: at, Program: p})
		if err != nil {
			return s, fmt.Errorf("attach a spy: %w", err)
		}
		s.links = append(s.links, l)
	}
	return s, nil
}

func (s *spy) reset() { clear(s.memory) }

// calls is how often an address was passed or rejected since reset.
func (s *spy) calls() uint32 { return binary.NativeEndian.Uint32(s.memory[spyCalls:]) }

// endpoint is the last address.
func (s *spy) endpoint() (e wire.Endpoint) {
	e.Port = binary.BigEndian.Uint16(s.memory[spyPort:])
	if s.memory[spyFamily] == 6 {
		e.Addr = wire.Addr(s.memory[spyAddr:][:16])
	} else {
		e.Addr = wire.From4(s.memory[spyAddr:])
	}
	return e
}

func (s *spy) close() {
	for _, l := range s.links {
		l.Close()
	}
}
