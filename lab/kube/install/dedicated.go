package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/lab/load"
)

// own is a Service with dedicated load balancers.
const own = `apiVersion: v1
kind: Service
metadata: {name: own, annotations: {fairlead.io/dedicated: "true"}}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

// dedicated scales the dedicated load balancers of a Service while clients send requests.
func (w *world) dedicated(ctx context.Context) error {
	if !w.reflected() {
		return nil // the plain manifests have no dedicated load balancers
	}
	if err := w.apply(ctx, "own.yaml", own); err != nil {
		return err
	}
	vip, err := w.vip(ctx, "own")
	if err != nil {
		return err
	}
	if err := w.byOwn(ctx, vip, 1); err != nil {
		return err
	}
	if err := w.answered(ctx, vip); err != nil {
		return err
	}
	if err := w.reported(ctx, "own"); err != nil {
		return err
	}
	w.Say("the Service own has the address %s; its load balancer, a pod on the router's segment, forwarded the client to all 4 pods", vip)
	clients, err := load.Start(ctx, load.Config{
		Dial: w.Host("client").Dial, Target: netip.AddrPortFrom(vip, 80), OneShotRate: 50, KeepAlive: 20, KeepAliveRate: 20, Path: "/hostname",
	})
	if err != nil {
		return err
	}
	defer clients.Stop()
	for _, n := range []int{3, 1} {
		if err := w.byOwn(ctx, vip, n); err != nil {
			return err
		}
	}
	clients.Stop()
	counts := clients.Total()
	w.Say("scaled from 1 to 3 load balancers and back: %d requests, %d failed, %d connections broke %v", counts.Requests, counts.Failed, counts.BrokenConnections, counts.Reasons)
	if counts.Requests == 0 || counts.Failed+counts.BrokenConnections > 0 {
		return fmt.Errorf("%d of %d requests failed and %d connections broke while load balancers were scaled", counts.Failed, counts.Requests, counts.BrokenConnections)
	}
	_, err = w.Kubectl(ctx, "delete", "service", "own")
	return err
}

// byOwn scales the load balancers, and waits until the router uses exactly these.
func (w *world) byOwn(ctx context.Context, vip netip.Addr, n int) error {
	const what = "deployment/fairlead-balancer-own"
	if _, err := w.Kubectl(ctx, "--namespace", "fairlead", "scale", what, fmt.Sprintf("--replicas=%d", n)); err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "--namespace", "fairlead", "rollout", "status", what, "--timeout=2m"); err != nil {
		return err
	}
	var pods []string
	err := w.await(ctx, "balancers that go", func() error {
		said, err := w.Kubectl(ctx, "--namespace", "fairlead", "get", "pods", "--selector", "fairlead.io/balancer=own",
			"--output", "jsonpath={.items[*].status.podIP}")
		if pods = strings.Fields(said); err == nil && len(pods) != n {
			err = fmt.Errorf("there are %d pods, want %d", len(pods), n)
		}
		return err
	})
	if err != nil {
		return err
	}
	return w.routed(ctx, vip, pods...)
}
