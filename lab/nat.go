package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netns"
)

// addSNAT installs the masquerading rules of one host.
func addSNAT(ns *netns.NS, rules []SNAT) error {
	if len(rules) == 0 {
		return nil
	}
	conn, err := nftables.New(nftables.WithNetNSFd(ns.FD()))
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	chains := map[bool]*nftables.Chain{}
	for _, r := range rules {
		from := netip.MustParsePrefix(r.From)
		v4 := from.Addr().Is4()
		if chains[v4] == nil {
			chains[v4] = natChain(conn, v4)
		}
		match := matchPrefix(from, source, expr.CmpOpEq)
		for _, spare := range r.Spare {
			match = append(match, matchPrefix(netip.MustParsePrefix(spare), destination, expr.CmpOpNeq)...)
		}
		conn.AddRule(&nftables.Rule{Table: chains[v4].Table, Chain: chains[v4], Exprs: append(match, &expr.Masq{})})
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nftables: masquerade: %w", err)
	}
	return nil
}

func natChain(conn *nftables.Conn, v4 bool) *nftables.Chain {
	family := nftables.TableFamilyIPv6
	if v4 {
		family = nftables.TableFamilyIPv4
	}
	table := conn.AddTable(&nftables.Table{Family: family, Name: "lab"})
	return conn.AddChain(&nftables.Chain{
		Table: table, Name: "postrouting", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
}

// whichAddress is the address of a packet that is matched.
type whichAddress int

const (
	source whichAddress = iota
	destination
)

// matchPrefix loads an address from the IP header (RFC 791, RFC 8200), masks it and
// compares it.
func matchPrefix(p netip.Prefix, which whichAddress, op expr.CmpOp) []expr.Any {
	offset, length := uint32(8), uint32(net.IPv6len)
	if p.Addr().Is4() {
		offset, length = 12, net.IPv4len
	}
	if which == destination {
		offset += length
	}
	return []expr.Any{
		&expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
		&expr.Bitwise{
			SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: length,
			Mask: net.CIDRMask(p.Bits(), int(length)*8), Xor: make([]byte, length),
		},
		&expr.Cmp{Op: op, Register: unix.NFT_REG_1, Data: p.Masked().Addr().AsSlice()},
	}
}

// IPNet converts a prefix, or an address with its prefix length, for netlink.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
