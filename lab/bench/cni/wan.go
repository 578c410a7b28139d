package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/transfer"
	"github.com/fairlead/fairlead/lab/multisite"
)

const (
	// wanDelay is the time between the sites, about that between Daejeon and Busan.
	wanDelay = 2 * time.Millisecond
	// wanSettle lets TCP find its rate over that distance.
	wanSettle = time.Second
)

// wanRate is the only rate: two CPUs carry up to 4 Gbit/s over the delay line, not the 10
// of figure 6.
const wanRate = "1G"

// wide measures the paper's figure 5 with a delay between the sites.
func wide(ctx context.Context, o Options, r *bench.Report) (err error) {
	n, err := newNetwork(ctx, o, wanDelay)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	n.settle = wanSettle
	if n.from[Weave], err = n.bridged(ctx, n.Daejeon, Weave, "daejeon-weave", firstPod, false); err != nil {
		return err
	}
	if n.from[Calico], err = n.routed(ctx, n.Daejeon, "daejeon-calico"); err != nil {
		return err
	}
	server, err := transfer.Start(n.Lab.Host(n.Busan.Server))
	if err != nil {
		return err
	}
	var ways []way
	for _, kind := range []string{Host, Macvlan, HostDevice, HostGW, VXLAN, Weave, Calico} {
		from, err := transfer.Start(n.from[kind].host)
		if err != nil {
			return err
		}
		ways = append(ways, way{toServer, kind, from, server, n.Busan.ServerAddr})
	}
	o.logf("wan: %s, %d rounds", wanRate, o.Rounds)
	all, err := n.under(ctx, setting{wanRate, true}, ways)
	if err != nil {
		return err
	}
	for _, w := range ways {
		got, name := all[[2]string{w.pair, w.kind}], fmt.Sprintf("wan, %s, %s, %s: ", wanRate, w.pair, w.kind)
		r.Rows = append(r.Rows,
			bench.Estimated(name+"throughput", "Mbit/s", got.rates()...), bench.Plain(name+"spread", "%", got.each(run.spread)...),
			bench.Estimated(name+"CPU", "ms/Gbit", got.cpu()...))
	}
	r.Note("wan: the rate is that of IP packets, without Ethernet headers; %s between the sites; one TCP connection; bytes acknowledged in %g s, after %s", wanDelay, o.Seconds, wanSettle)
	return nil
}

// routed creates a pod without a bridge, as Calico does: the pod's only route is to an
// address for which the node answers, and the node has a route to the pod.
func (n *network) routed(ctx context.Context, site *multisite.Site, name string) (place, error) {
	const gateway, dev = "169.254.1.1", "cali0"
	addr := multisite.Nth(site.Bridge(len(behind)), firstPod)
	err := n.Lab.Add(ctx, lab.Topology{
		Hosts: []lab.HostSpec{{Name: name, Is: "pod"}},
		Links: []lab.Link{{
			A:   lab.At(name, podDev, addr.String()+"/32").To(gateway+"/32").Via(gateway, "default"),
			B:   lab.At(site.Node, dev).To(addr.String() + "/32"),
			MTU: mtus[Calico],
		}},
	})
	if err != nil {
		return place{}, err
	}
	return place{n.Lab.Host(name), addr}, n.Lab.Host(site.Node).Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/conf/"+dev+"/proxy_arp", []byte("1"), 0)
	})
}
