package dsr

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/netorder"
)

// Entry is one frontend with one backend.
type Entry struct {
	service.Key
	// Method is service.Tunnel, service.DSRNAT or service.DR.
	Method service.Method
	// Server is the load balancer's destination: the outer destination of the tunnel,
	// and the port on which the backend listens; port 0 with a range, for the
	// client's destination port.
	Server netip.AddrPort
	// Deliver is the backend's address in the VIP's family if Server is of the other
	// one (tunnel only). It may be the VIP itself, for a backend that has it. The
	// zero Addr means Server's own.
	Deliver netip.Addr
}

// String returns "tunnel TCP 10.1.1.1:80 at 172.16.1.2:8080".
func (e Entry) String() string { return fmt.Sprintf("%s %s at %s", e.Method, e.Key, e.Server) }

// Delivered is the final address of packets to the backend, and of its flows.
func (e Entry) Delivered() netip.AddrPort {
	if e.Deliver.IsValid() {
		return netip.AddrPortFrom(e.Deliver, e.Server.Port())
	}
	return e.Server
}

// Compare orders entries by frontend, backend and forwarding mode.
func (e Entry) Compare(o Entry) int {
	return cmp.Or(e.Key.Compare(o.Key), e.Server.Compare(o.Server), cmp.Compare(e.Method, o.Method),
		e.Deliver.Compare(o.Deliver))
}

// methods are those that need a DSR agent, with their numbers in the programs.
var methods = map[service.Method]dsrServerMethod{
	service.Tunnel: methodTunnel,
	service.DSRNAT: methodDirectNAT,
	service.DR:     methodDR,
}

const (
	methodTunnel    = dsrServerMethodSERVER_METHOD_TUNNEL
	methodDirectNAT = dsrServerMethodSERVER_METHOD_DIRECT_NAT
	methodDR        = dsrServerMethodSERVER_METHOD_DR
)

// methodOf is the inverse of methods.
func methodOf(m dsrServerMethod) service.Method {
	for name, number := range methods {
		if number == m {
			return name
		}
	}
	return ""
}

// Entries returns a frontend's entries for the DSR agents: one per backend, none if its
// forwarding mode returns replies through the load balancer.
func Entries(f desired.Frontend) []Entry {
	if methods[f.Method] == 0 {
		return nil
	}
	entries := make([]Entry, 0, len(f.Backends))
	for _, b := range f.Backends {
		entries = append(entries, Entry{Key: f.Key, Method: f.Method, Server: b.Addr})
	}
	return entries
}

// plain is the entry in the normal form of the maps.
func (e Entry) plain() Entry {
	e.VIP = e.VIP.Unmap()
	e.Server = netip.AddrPortFrom(e.Server.Addr().Unmap(), e.Server.Port())
	e.Deliver = e.Deliver.Unmap()
	if !e.Deliver.IsValid() {
		e.Deliver = e.Server.Addr()
	}
	return e
}

// check returns what is wrong with an entry in its plain form.
func (e Entry) check() error {
	switch {
	case methods[e.Method] == 0:
		return fmt.Errorf("forwarding mode %q does not use the DSR agent: use %q, %q or %q", e.Method, service.Tunnel, service.DSRNAT, service.DR)
	case !usable(e.VIP) || e.Port == 0 && !e.Range():
		return errors.New("VIP: must be a unicast address and a port")
	case e.Range() && e.Last < e.Port:
		return fmt.Errorf("last port %d: must not be below the first, %d", e.Last, e.Port)
	case !usable(e.Server.Addr()) || e.Server.Port() == 0 && !e.Range():
		return errors.New("backend: must be a unicast address and a port")
	case e.Method == service.DSRNAT && e.Deliver != e.Server.Addr():
		return errors.New("deliver: only for tunnel and dr")
	case e.Method != service.Tunnel && e.Server.Addr().Is4() != e.VIP.Is4():
		return errors.New("backend and VIP are of different IP families: use tunnel, or a backend of the VIP's IP family")
	case e.Deliver.Is4() != e.VIP.Is4():
		return errors.New("backend and VIP are of different IP families: set deliver to the backend's address of the VIP's IP family")
	}
	return e.checkProtocol()
}

func (e Entry) checkProtocol() error {
	kept := e.Server.Port() == 0 || !e.Range() && e.Server.Port() == e.Port
	switch e.Protocol {
	case service.TCP, service.UDP:
	case service.SCTP:
		if !kept {
			return fmt.Errorf("SCTP: the backend's port must be that of the VIP, %d: the SCTP checksum (CRC32c) covers the ports, and a program cannot determine whether it is filled in yet", e.Port)
		}
	case service.AnyProtocol:
		if !e.Range() || !kept {
			return errors.New("any protocol: only for a port range that backends serve on the same ports")
		}
	default:
		return fmt.Errorf("protocol %s: use TCP, UDP or SCTP", e.Protocol)
	}
	return nil
}

func usable(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && a.Zone() == ""
}

// addrOf and netip are netorder's, for the DSR agent's own type.
func addrOf(ip netip.Addr) dsrAddr { return dsrAddr{Word: netorder.Words(ip)} }

func (a dsrAddr) netip() netip.Addr { return netorder.Addr(a.Word) }
