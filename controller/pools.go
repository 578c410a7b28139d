package controller

import (
	"context"
	"maps"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/addresspool"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/source/crd"
)

// ConditionReady is the condition of an AddressPool that reports whether its addresses are
// assigned, and why not; its reasons are Ready, InvalidSpec, and ReasonOverlapsNodeAddress.
const ConditionReady = "Ready"

const (
	// ReasonInvalid is the reason for a rejected AddressPool, BGPPeer or Advertisement.
	ReasonInvalid = "InvalidSpec"
	// ReasonOverlapsNodeAddress is the reason for a pool of which some addresses are not
	// assigned because they are nodes' own.
	ReasonOverlapsNodeAddress = "OverlapsNodeAddress"
)

// allPools returns the AddressPools, oldest first.
func (t *term) allPools() (all []*v1alpha1.AddressPool) {
	for _, o := range t.pools.GetStore().List() {
		all = append(all, o.(*v1alpha1.AddressPool))
	}
	return crd.ByAge(all)
}

// nodeAddrs returns the addresses of all nodes with the node's name, the first if several
// have it.
func (t *term) nodeAddrs() map[netip.Addr]string {
	of := map[netip.Addr]string{}
	for _, o := range t.nodes.GetStore().List() {
		n := o.(*corev1.Node)
		for _, a := range n.Status.Addresses {
			addr, err := netip.ParseAddr(a.Address)
			if err != nil { // a name
				continue
			}
			if other, twice := of[addr.Unmap()]; !twice || n.Name < other {
				of[addr.Unmap()] = n.Name
			}
		}
	}
	return of
}

// setPools updates the allocator's pools, without the nodes' addresses, and reports whether
// anything changed.
func (t *term) setPools() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.allPools()
	of := map[types.UID]int64{}
	for _, p := range all {
		of[p.UID] = p.Generation
	}
	nodes := t.nodeAddrs()
	if maps.Equal(of, t.poolsOf) && maps.Equal(nodes, t.nodesOf) {
		return false
	}
	t.poolsOf, t.nodesOf = of, nodes
	t.alloc.SetNodes(nodes)
	t.known, t.refused = map[string]crd.Pool{}, map[string]error{}
	var pools []addresspool.Pool
	for _, p := range all {
		if parsed, err := crd.ParsePool(p); err != nil {
			t.refused[p.Name] = err
		} else {
			t.known[p.Name] = parsed
			pools = append(pools, parsed.Pool)
		}
	}
	for name, err := range t.alloc.SetPools(pools) {
		t.refused[name] = err
		t.Log.Warn("AddressPool rejected", "pool", name, "error", err)
	}
	return true
}

// countUse writes the pools' status when it has changed, at most every StatusInterval.
func (t *term) countUse(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.used:
		}
		if !t.writePools(ctx) {
			wake.Up(t.used)
		}
		sleep.For(ctx, t.StatusInterval)
	}
}

// writePools writes the status of pools that has changed, and reports whether all is
// written.
func (t *term) writePools(ctx context.Context) (done bool) {
	done = true
	for _, p := range t.allPools() {
		status, ok := t.poolStatus(p)
		if !ok || equality.Semantic.DeepEqual(status, &p.Status) {
			continue
		}
		before := meta.FindStatusCondition(p.Status.Conditions, ConditionReady)
		now := meta.FindStatusCondition(status.Conditions, ConditionReady)
		if !t.writePool(ctx, p, status) {
			done = false
		} else if before == nil && now.Reason != "Ready" || before != nil && before.Reason != now.Reason {
			t.recordEvent(p, now.Reason != "Ready", now.Reason, "ReadPool", now.Message)
		}
	}
	return done
}

// poolStatus returns the status of a pool; false if it was added since pools were last set.
func (t *term) poolStatus(p *v1alpha1.AddressPool) (*v1alpha1.AddressPoolStatus, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	status := p.Status.DeepCopy()
	condition := metav1.Condition{
		Type: ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: "its addresses are assigned", ObservedGeneration: p.Generation,
	}
	status.IPv4, status.IPv6 = nil, nil
	if err := t.refused[p.Name]; err != nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, ReasonInvalid
		condition.Message = strings.ReplaceAll(err.Error(), "\n", "; ")
	} else {
		usage, ok := t.alloc.Usage(p.Name)
		if !ok {
			return nil, false
		}
		if own := t.alloc.OfNodes(p.Name); own != "" {
			condition.Reason = ReasonOverlapsNodeAddress
			condition.Message = "its addresses are assigned, except those of nodes: " + own + "; reserve them (spec.reserved), or change the addresses of the nodes"
		}
		status.IPv4, status.IPv6 = familyUsage(usage[addresspool.IPv4]), familyUsage(usage[addresspool.IPv6])
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status, true
}

// familyUsage returns nil for a family of which a pool has no addresses.
func familyUsage(u addresspool.Usage) *v1alpha1.FamilyUsage {
	if u.Total == 0 {
		return nil
	}
	return &v1alpha1.FamilyUsage{Total: u.Total, Used: u.Used, Free: u.Free}
}

func (t *term) writePool(ctx context.Context, p *v1alpha1.AddressPool, status *v1alpha1.AddressPoolStatus) bool {
	// A merge patch must name removed families.
	return t.patch(ctx, t.api[v1alpha1.GroupVersion], "addresspools", &p.ObjectMeta, nil,
		map[string]any{"ipv4": status.IPv4, "ipv6": status.IPv6, "conditions": status.Conditions})
}
