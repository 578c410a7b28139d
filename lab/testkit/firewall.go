package testkit

import (
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"github.com/fairlead/fairlead/lab/netns"
)

// DropInvalid adds a firewall to a namespace that drops packets in connection tracking's
// invalid state, as kube-proxy's does.
func DropInvalid(t testing.TB, ns *netns.NS) {
	t.Helper()
	const invalid = 1 // NF_CT_STATE_INVALID_BIT
	c, err := nftables.New(nftables.WithNetNSFd(ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "firewall"})
	for name, hook := range map[string]*nftables.ChainHook{
		"input": nftables.ChainHookInput, "forward": nftables.ChainHookForward, "output": nftables.ChainHookOutput,
	} {
		chain := c.AddChain(&nftables.Chain{
			Table: table, Name: name, Hooknum: hook, Type: nftables.ChainTypeFilter, Priority: nftables.ChainPriorityFilter,
		})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(invalid), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}})
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}
