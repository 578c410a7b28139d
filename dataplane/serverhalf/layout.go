package serverhalf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/service"
)

// layout names the folder of pinned maps after their layout. The first one had
// its maps beside the links, in no folder of their own.
const layout = "layout2"

// takeOver puts the programs in the place of a predecessor's. What one of the
// first layout remembers comes along, twice: flows may begin until its programs
// are gone.
func (h *Half) takeOver(newHook tc.Opener) error {
	old, err := h.openLayout1()
	if err != nil {
		return err
	}
	defer old.close()
	if err := h.carryOver(old); err != nil {
		return fmt.Errorf("carry over what is pinned: %w", err)
	}
	held, err := h.rows()
	if err != nil {
		return err
	}
	if err := errors.Join(h.serveDR(held), h.inheritNextServers(held), h.forgetRows()); err != nil {
		return err
	}
	if h.hook, err = newHook(h.dir, h.obj.hooked()); err != nil {
		return err
	}
	if err := h.carryOver(old); err != nil {
		return fmt.Errorf("carry over what is pinned: %w", err)
	}
	return h.removeLayout1()
}

// layout1 is what the first layout pinned; nil where there is none.
type layout1 struct{ localVIPs, flows *ebpf.Map }

// localVIP1 is its struct local_vip; the key was as it is now.
type localVIP1 struct {
	Deliver       serverAddr
	Port          uint16
	_             uint16
	Method, Place uint32
	_             uint32
	Left          uint64
}

// flow1 is its struct server_flow, by struct tuple.
type flow1 struct {
	VIP      serverAddr
	VIPPort  uint16
	Overhead uint8
	_        uint8
	Method   uint32
	Seen     uint64
}

func (h *Half) openLayout1() (*layout1, error) {
	var old layout1
	for name, m := range map[string]**ebpf.Map{serverMapLocalVips: &old.localVIPs, serverMapServerFlows: &old.flows} {
		pinned, err := ebpf.LoadPinnedMap(h.dir.Path(name), nil)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			old.close()
			return nil, fmt.Errorf("pinned map %s: %w", name, err)
		}
		*m = pinned
	}
	return &old, nil
}

func (l *layout1) close() {
	for _, m := range []*ebpf.Map{l.localVIPs, l.flows} {
		if m != nil {
			m.Close()
		}
	}
}

func (h *Half) removeLayout1() error {
	return errors.Join(h.dir.Remove(serverMapLocalVips), h.dir.Remove(serverMapServerFlows), h.dir.Remove(serverMapServerCounters))
}

// carryOver copies what is not here yet.
func (h *Half) carryOver(old *layout1) error {
	var errs []error
	if old.localVIPs != nil {
		errs = append(errs, h.carryRows(old.localVIPs))
	}
	if old.flows != nil {
		errs = append(errs, h.carryFlows(old.flows))
	}
	return errors.Join(errs...)
}

func (h *Half) carryRows(from *ebpf.Map) error {
	var key serverLocalVipKey
	var row localVIP1
	it := from.Iterate()
	for it.Next(&key, &row) {
		if key.VipPort == 0 {
			continue // a "target" of direct-nat: its packets tell their VIP now
		}
		e := Entry{
			Key:     service.Key{VIP: key.Vip.netip(), Port: netorder.Port(key.VipPort), Protocol: service.Protocol(key.Proto)},
			Method:  methodOf(serverServerMethod(row.Method)),
			Server:  netip.AddrPortFrom(key.Server.netip(), netorder.Port(row.Port)),
			Deliver: row.Deliver.netip(),
		}
		for key, now := range e.rows() {
			now.Place, now.Left = serverServerPlace(row.Place), row.Left
			if err := h.obj.LocalVips.Update(key, now, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
				return fmt.Errorf("write %s: %w", e, err)
			}
		}
	}
	return it.Err()
}

// carryFlows has the program itself remember each flow. What was remembered
// was established, or soon is.
func (h *Half) carryFlows(from *ebpf.Map) error {
	const state = serverFlowStateFLOW_OPENED | serverFlowStateFLOW_ANSWERED | serverFlowStateFLOW_CONFIRMED
	var key serverTuple
	var old flow1
	it := from.Iterate()
	for it.Next(&key, &old) {
		err := h.adopt(serverServerFlow{
			Client: key.Src, Server: key.Dst, ClientPort: key.Sport, ServerPort: key.Dport, Proto: key.Proto,
			Vip: old.VIP, VipPort: old.VIPPort, Overhead: old.Overhead, Method: serverServerMethod(old.Method),
			Seen: uint32(old.Seen >> clock.TickShift), State: state,
		})
		if err != nil { // the programs serve without them, as after a reboot
			h.log.Warn("DSR agent: flows of the previous map layout are not carried over", "error", err)
			return nil
		}
	}
	return it.Err()
}

// adopt remembers a flow that is not known yet; where its set is full it is
// lost, as it would be there.
func (h *Half) adopt(f serverServerFlow) error {
	const ethernet = 14
	frame, err := binary.Append(make([]byte, ethernet), binary.NativeEndian, f)
	if err != nil {
		return err
	}
	if _, err := h.obj.Adopt.Run(&ebpf.RunOptions{Data: frame}); err != nil {
		return fmt.Errorf("carry a flow over: %w", err)
	}
	return nil
}
