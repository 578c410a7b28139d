package cni

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/transfer"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/multisite"
	"github.com/fairlead/fairlead/lab/pki"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/vdn"
)

const (
	// federationPort is the port on which controllers exchange what they share.
	federationPort = 7474
	// refusedWithin is how long to wait for a connection that must fail. It includes the
	// first retransmission of the SYN. reachedWithin is the timeout of one attempt for a
	// connection that is retried.
	refusedWithin = 1500 * time.Millisecond
	reachedWithin = 100 * time.Millisecond
	// federated is the rate limit between the sites, and of the uplinks of nodes and
	// gateways.
	federated vdn.Rate = 1e9
)

// federation has two controllers exchange their networks, and nodes and gateways enforce
// them. It then measures from a pod of one domain to a pod of the other.
func federation(ctx context.Context, o Options, r *bench.Report) (err error) {
	if o.Plugin == "" {
		r.Note("federation: skipped, fairlead-cni was not found next to the binary")
		return nil
	}
	s, err := multisite.New(ctx)
	if err != nil {
		return err
	}
	n := &network{Sites: s, o: o, controllers: map[*multisite.Site]*controller{}}
	defer func() { err = errors.Join(err, n.Close(), os.RemoveAll(pins)) }()
	if err := n.Limit(uint64(federated)); err != nil {
		return err
	}
	from, to, err := n.domains(ctx)
	if err != nil {
		return err
	}
	before, err := n.reaches(ctx, from, to, refusedWithin)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := n.allow(ctx); err != nil {
		return err
	}
	var there bool
	at, ok := cluster.Await(ctx, 5*time.Millisecond, cluster.StartLimit, func() bool { there, err = n.reaches(ctx, from, to, reachedWithin); return there })
	if !ok {
		return errors.Join(ctx.Err(), err, fmt.Errorf("the sites' pods do not reach each other: %s", cluster.LastLines(n.logFile(n.Daejeon.Gateway))))
	}
	refused := 0.0
	if before {
		refused = 1
	}
	r.Rows = append(r.Rows,
		bench.Plain("federation, connections before both networks name each other", "connections", refused).AtMost(0),
		bench.Plain("federation, until the pods of both sites reach each other", "s", at.Sub(began).Seconds()),
	)
	return n.acrossDomains(ctx, from, to, r)
}

// acrossDomains measures between the pods.
func (n *network) acrossDomains(ctx context.Context, from, to place, r *bench.Report) error {
	a, err := transfer.Start(from.host)
	if err != nil {
		return err
	}
	b, err := transfer.Start(to.host)
	if err != nil {
		return err
	}
	var all runs
	var p50 []float64
	for range n.o.Rounds {
		got, err := n.measure(ctx, way{from: a, to: b, target: to.addr})
		if err != nil {
			return err
		}
		asked, err := a.Do(transfer.Order{Ask: netip.AddrPortFrom(to.addr, transfer.EchoPort), Seconds: asking * n.o.Seconds})
		if err != nil {
			return err
		}
		all, p50 = append(all, got), append(p50, asked.P50)
	}
	r.Rows = append(r.Rows,
		bench.Estimated(fmt.Sprintf("federation, pod to pod, %s: throughput", federated), "Mbit/s", all.rates()...),
		bench.Estimated("federation, pod to pod: p50", "us", p50...),
	)
	n.o.logf("  %8.0f Mbit/s, %.1f us", bench.SpreadOf(all.rates()).Median, bench.SpreadOf(p50).Median)
	r.Note("federation: pods on macvlan, each of a domain with a controller of its own; nodes and gateways enforce by the kernel, and the controllers speak over mutually authenticated TLS")
	return nil
}

// domains starts a domain with one pod at each site, and waits until both are enforced.
func (n *network) domains(ctx context.Context) (from, to place, err error) {
	authority, err := pki.New(filepath.Join(sandbox.WorkDir, "federation-pki"))
	if err != nil {
		return from, to, err
	}
	places := map[*multisite.Site]*place{n.Daejeon: &from, n.Busan: &to}
	for site, p := range places {
		if err := certify(authority, site); err != nil {
			return from, to, err
		}
		if n.controllers[site], err = n.startController(ctx, site, federationArgs(authority, site)...); err != nil {
			return from, to, err
		}
		if *p, err = n.plugged(ctx, site, Macvlan, site.Name+"-"+Macvlan); err != nil {
			return from, to, err
		}
		if _, err := p.host.Listen("tcp", fmt.Sprintf(":%d", refusedPort)); err != nil {
			return from, to, err
		}
		if err := n.enforce(site); err != nil {
			return from, to, err
		}
	}
	for site := range places {
		if err := n.enforced(ctx, site); err != nil {
			return from, to, err
		}
	}
	return from, to, nil
}

// refusedPort is the port to which reaches connects.
const refusedPort = 7

// federationArgs returns a controller's flags for its certificate and its listen address.
func federationArgs(authority *pki.Authority, site *multisite.Site) []string {
	return []string{
		"--federation-listen", federationAt(site), "--federation-cert", authority.Crt(site.Domain()),
		"--federation-key", authority.Key(site.Domain()), "--federation-ca", authority.Crt("ca"),
	}
}

func federationAt(site *multisite.Site) string {
	return netip.AddrPortFrom(site.NodeAddr, federationPort).String()
}

// certify issues a site's certificate.
func certify(authority *pki.Authority, site *multisite.Site) error {
	cert, key, err := authority.Issue(&x509.Certificate{DNSNames: []string{site.Domain()}})
	if err != nil {
		return err
	}
	return authority.Write(site.Domain(), cert, key)
}

// enforce starts the VDN agents of a site's node and gateway.
func (n *network) enforce(site *multisite.Site) error {
	for host, uplinks := range map[string][]string{site.Node: {multisite.NodeDev}, site.Gateway: {"node", multisite.WANDev}} {
		args := []string{
			"vdn", "agent", "--name", host, "--controller", n.controllers[site].url, "--bpffs", filepath.Join(pins, host),
			"--data", filepath.Join(n.controllers[site].folder, host), "--socket", filepath.Join(n.controllers[site].folder, host+".sock"),
		}
		if host == site.Gateway {
			args = append(args, "--gateway")
		}
		for _, dev := range uplinks {
			args = append(args, "--uplink", fmt.Sprintf("%s=%s", dev, federated))
		}
		if err := n.start(n.Lab.Host(host), host, args...); err != nil {
			return err
		}
	}
	return nil
}

// enforced waits until a site's node and gateway have applied their controller's state,
// and the node guards the pod.
func (n *network) enforced(ctx context.Context, site *multisite.Site) error {
	var v vdn.View
	_, ok := cluster.Await(ctx, 50*time.Millisecond, cluster.StartLimit, func() bool {
		var err error
		if v, _, err = n.controllers[site].asks.View(ctx, 0, 0); err != nil || len(v.Nodes) != 2 {
			return false
		}
		for _, node := range v.Nodes {
			guards := func(c vdn.Counter) bool { return c.Attachment != "" }
			if node.Applied == 0 || node.Error != "" || !node.Gateway && !slices.ContainsFunc(node.Counters, guards) {
				return false
			}
		}
		return true
	})
	if !ok {
		return errors.Join(ctx.Err(), fmt.Errorf("%s: its nodes do not enforce: %+v: %s", site.Name, v.Nodes, cluster.LastLines(n.logFile(site.Gateway))))
	}
	return nil
}

// allow registers the domains with each other, and lets their networks reach each other.
func (n *network) allow(ctx context.Context) error {
	for site, other := range map[*multisite.Site]*multisite.Site{n.Daejeon: n.Busan, n.Busan: n.Daejeon} {
		asks := n.controllers[site].asks
		peer := vdn.Peer{Domain: other.Domain(), URL: "https://" + federationAt(other), NextHops: []netip.Addr{other.WANAddr}}
		if err := asks.PutPeer(ctx, peer); err != nil {
			return err
		}
		net, err := asks.Network(ctx, Macvlan)
		if err != nil {
			return err
		}
		net.SharedWith, net.PeerNetworks = []string{other.Domain()}, []string{other.Domain() + "/" + Macvlan}
		if err := asks.PutNetwork(ctx, net); err != nil {
			return err
		}
	}
	return nil
}

// reaches reports whether one pod can connect to the other within a time limit.
func (n *network) reaches(ctx context.Context, from, to place, within time.Duration) (bool, error) {
	short, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c, err := from.host.Dial(short, netip.Addr{}, netip.AddrPortFrom(to.addr, refusedPort))
	if err != nil {
		return false, ctx.Err()
	}
	return true, c.Close()
}
