package attach

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/xdp/device"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/features"
)

// openTxPorts lets packets leave by every interface before a program that sends them
// there is attached.
func (ls *Links) openTxPorts() error {
	for _, name := range ls.Interfaces {
		nic, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("xdp: interface %s: %w", name, err)
		}
		members, err := device.Members(nic)
		if err != nil {
			return fmt.Errorf("xdp: interface %s: %w", name, err)
		}
		for _, from := range append(members, nic) {
			if err := ls.TxPorts.Put(uint32(from.Attrs().Index), uint32(nic.Attrs().Index)); err != nil {
				return fmt.Errorf("xdp: interface %s: allow redirects to it: %w", name, err)
			}
		}
	}
	return nil
}

// closeTxPorts prevents native programs from redirecting packets to an interface with a
// generic program, most likely because its driver does not support redirects: those go
// through the kernel. Generic programs redirect to any.
func (ls *Links) closeTxPorts() error {
	var generic []uint32
	for _, name := range ls.Interfaces {
		nic, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("xdp: interface %s: %w", name, err)
		}
		if isGeneric(nic) {
			generic = append(generic, uint32(nic.Attrs().Index))
		}
	}
	if len(generic) == len(ls.Interfaces) {
		return nil
	}
	for _, index := range generic {
		if err := ls.TxPorts.Delete(index); err != nil {
			return fmt.Errorf("xdp: interface %d: remove it from the redirect map: %w", index, err)
		}
	}
	return nil
}

// adoptLinks updates links of another layout to this program, and moves their pins here.
func (ls *Links) adoptLinks(older *bpffs.Dir) error {
	if older == nil {
		return nil
	}
	pins, err := older.Names(Prefix)
	if err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(older.Path(pin), nil)
		if err != nil {
			return fmt.Errorf("xdp: take over %s: %w", pin, err)
		}
		err = l.Update(ls.Program)
		if errors.Is(err, unix.ENOLINK) {
			err = l.Unpin() // its interface no longer exists
		} else if err == nil {
			err = l.Pin(ls.Pins.Path(pin))
		}
		if err = errors.Join(err, l.Close()); err != nil {
			return fmt.Errorf("xdp: take over %s: %w", pin, err)
		}
	}
	return nil
}

// attachOne returns a line for Describe.
func (ls *Links) attachOne(name string) (string, error) {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return "", fmt.Errorf("xdp: interface %s: %w", name, err)
	}
	taken, err := ls.takeOver(nic)
	if err != nil {
		return "", err
	}
	reason := ""
	if taken {
		ls.taken = append(ls.taken, name)
		reason = cmp.Or(device.LosesNative(nic), "as a predecessor left it")
	} else {
		if err := refuseOccupied(name); err != nil {
			return "", err
		}
		if reason, err = ls.attachNew(nic); err != nil {
			return "", err
		}
	}
	hides, err := device.ShowVLANs(ls.Pins, nic)
	if err != nil {
		return "", fmt.Errorf("xdp: interface %s: %w", name, err)
	}
	return ls.describeAttached(name, reason, hides)
}

// takeOver replaces the program of a link pinned by a predecessor. It removes a link
// whose interface no longer exists, or has another mode than configured.
func (ls *Links) takeOver(nic netlink.Link) (bool, error) {
	name := nic.Attrs().Name
	pin := Pin(name)
	pins, err := ls.Pins.Names(pin)
	if err != nil || !slices.Contains(pins, pin) {
		return false, err
	}
	l, err := link.LoadPinnedLink(ls.Pins.Path(pin), nil)
	if err != nil {
		return false, fmt.Errorf("xdp: interface %s: pinned link: %w", name, err)
	}
	info, err := l.Info()
	if err != nil {
		return false, errors.Join(fmt.Errorf("xdp: interface %s: pinned link: %w", name, err), l.Close())
	}
	if info.XDP().Ifindex != uint32(nic.Attrs().Index) || !ls.modeFits(nic) {
		return false, endLink(l)
	}
	if err := l.Update(ls.Program); err != nil {
		return false, errors.Join(fmt.Errorf("xdp: interface %s: replace the program: %w", name, err), l.Close())
	}
	ls.links[name] = l
	return true, nil
}

func (ls *Links) modeFits(nic netlink.Link) bool {
	generic := isGeneric(nic)
	return ls.Mode == Auto || generic == (ls.Mode == Generic)
}

// isGeneric reports whether a program is attached in generic mode (IFLA_XDP_ATTACHED,
// linux/if_link.h).
func isGeneric(nic netlink.Link) bool {
	const attachedSKB = 2
	x := nic.Attrs().Xdp
	return x != nil && x.AttachMode == attachedSKB
}

// refuseOccupied returns an error that names another owner's program.
func refuseOccupied(name string) error {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("xdp: interface %s: %w", name, err)
	}
	x := nic.Attrs().Xdp
	if x == nil || !x.Attached {
		return nil
	}
	program := "?"
	if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(x.ProgId)); err == nil {
		if info, err := p.Info(); err == nil {
			program = info.Name
		}
		p.Close()
	}
	return fmt.Errorf("xdp: interface %s: %w: %q (id %d): stop the agent that attached it, or detach it (ip link set dev %[1]s xdp off)",
		name, ErrOccupied, program, x.ProgId)
}

// attachNew attaches and pins. It returns the reason for a fallback.
func (ls *Links) attachNew(nic netlink.Link) (reason string, err error) {
	name := nic.Attrs().Name
	if ls.Mode == Auto {
		reason = device.LosesNative(nic)
	}
	generic := ls.Mode == Generic || reason != ""
	l, err := ls.attachAs(nic, generic)
	if err != nil && !generic {
		err = device.WithParts(nic, err)
	}
	if err != nil && ls.Mode == Auto && reason == "" {
		reason = fmt.Sprintf("native refused: %v", err)
		l, err = ls.attachAs(nic, true)
	}
	if err != nil {
		return "", features.Refused(features.Balancer, fmt.Sprintf("xdp: interface %s: attach", name), err)
	}
	if err := l.Pin(ls.Pins.Path(Pin(name))); err != nil {
		return "", errors.Join(fmt.Errorf("xdp: interface %s: pin link: %w", name, err), l.Close())
	}
	ls.links[name] = l
	return reason, nil
}

func (ls *Links) attachAs(nic netlink.Link, generic bool) (link.Link, error) {
	flags := link.XDPDriverMode
	if generic {
		flags = link.XDPGenericMode
		if err := device.GRO.TurnOff(ls.Pins, nic.Attrs().Name); err != nil {
			return nil, err
		}
	}
	return link.AttachXDP(link.XDPOptions{Program: ls.Program, Interface: nic.Attrs().Index, Flags: flags})
}

// describeAttached asks the kernel how the program is now attached.
func (ls *Links) describeAttached(name, reason, hides string) (string, error) {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return "", fmt.Errorf("xdp: interface %s: %w", name, err)
	}
	words := []string{name, "native"}
	if isGeneric(nic) {
		words = []string{name, "generic", reason}
		if ls.Mode == Auto {
			one := features.NewDegraded(features.NativeXDP, features.Balancer, fmt.Errorf("%s: %s", name, reason))
			one.Reason = "driver"
			ls.generic = append(ls.generic, one)
		}
	}
	words = slices.DeleteFunc(append(words, hides), func(w string) bool { return w == "" })
	return strings.Join(words, ": "), nil
}

// detachOthers detaches a predecessor's program from interfaces that are no longer
// configured.
func (ls *Links) detachOthers() error {
	pins, err := ls.Pins.Names(Prefix)
	if err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	wanted := map[string]bool{}
	for _, name := range ls.Interfaces {
		wanted[Pin(name)] = true
	}
	for _, pin := range pins {
		if wanted[pin] {
			continue
		}
		if err := ls.detachOne(pin); err != nil {
			return fmt.Errorf("xdp: detach %s: %w", strings.TrimPrefix(pin, Prefix), err)
		}
	}
	return nil
}

func (ls *Links) detachOne(pin string) error {
	l, err := link.LoadPinnedLink(ls.Pins.Path(pin), nil)
	if err != nil {
		return err
	}
	if info, err := l.Info(); err == nil && info.XDP().Ifindex != 0 {
		if err := ls.TxPorts.Delete(info.XDP().Ifindex); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return errors.Join(err, l.Close())
		}
	}
	return errors.Join(endLink(l), device.RestoreOffloads(ls.Pins, strings.ReplaceAll(strings.TrimPrefix(pin, Prefix), ":", ".")))
}
