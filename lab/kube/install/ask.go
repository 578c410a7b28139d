package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/kube/nodes"
)

// vip waits for a Service's address.
func (w *world) vip(ctx context.Context, service string) (vip netip.Addr, err error) {
	err = w.await(ctx, "an address", func() error {
		said, err := w.Kubectl(ctx, "get", "service", service, "--output", "jsonpath={.status.loadBalancer.ingress[0].ip}")
		if err != nil {
			return err
		}
		vip, err = netip.ParseAddr(said)
		return err
	})
	return vip, err
}

// get requests a page of the Service as the client.
func (w *world) get(ctx context.Context, vip netip.Addr, page string) (string, error) {
	return nodes.Get(ctx, w.Host("client"), "http://"+netip.AddrPortFrom(vip, 80).String()+page, "", nil)
}

func (w *world) onRouter(argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	p, err := w.Host("router").Start(cmd)
	if err != nil {
		return "", err
	}
	err = p.Wait()
	return b.String(), err
}

// routed waits until the router's next hops for an address are exactly these.
func (w *world) routed(ctx context.Context, vip netip.Addr, by ...string) error {
	slices.Sort(by)
	return w.await(ctx, "routes", func() error {
		said, err := w.onRouter("ip", "route", "show", vip.String())
		var have []string
		for _, m := range regexp.MustCompile(`via (\S+)`).FindAllStringSubmatch(said, -1) {
			have = append(have, m[1])
		}
		slices.Sort(have)
		if err == nil && !slices.Equal(have, by) {
			err = fmt.Errorf("the router sends %s by %v, want %v", vip, have, by)
		}
		return err
	})
}

// reported waits until the API server's objects say that the Service is complete, and that
// all sessions are established.
func (w *world) reported(ctx context.Context, service string) error {
	for _, args := range [][]string{
		{"wait", "service/" + service, "--for=condition=fairlead.io/Programmed"},
		{"wait", "service/" + service, "--for=condition=fairlead.io/Advertised"},
		{"--namespace", "fairlead", "wait", "bgpsessions", "--all", "--for=jsonpath={.status.state}=established"},
	} {
		if err := w.await(ctx, "kubectl "+strings.Join(args, " "), func() error {
			_, err := w.Kubectl(ctx, append(args, "--timeout=5s")...)
			return err
		}); err != nil {
			return err
		}
	}
	w.Say("the conditions of the Service %s, and all BGPSessions, say so, too", service)
	return nil
}

// answered waits for answers of all four pods.
func (w *world) answered(ctx context.Context, vip netip.Addr) error {
	hosts := map[string]bool{}
	return w.await(ctx, "answers of all pods", func() error {
		host, err := w.get(ctx, vip, "/hostname")
		if err == nil {
			hosts[host] = true
		}
		if len(hosts) < 4 {
			err = errors.Join(err, fmt.Errorf("%d of 4 pods have answered", len(hosts)))
		}
		return err
	})
}

// await retries f for a minute.
func (w *world) await(ctx context.Context, what string, f func() error) error {
	return nodes.Await(ctx, what, time.Minute, f)
}

// writeState writes information for debugging a failure.
func (w *world) writeState() error {
	all := w.State("pods,services,endpointslices,bgpsessions", []string{"get", "services,nodereports,nodeheartbeats", "--all-namespaces", "--output", "yaml"}, []string{"fairlead", "status"}, []string{"fairlead", "get", "services"}, []string{"fairlead", "drops"})
	for _, argv := range [][]string{
		{filepath.Join(w.root, "bin/fairlead"), "get", "routes", "--socket", w.routerSocket()}, {"ip", "route"}, {"ip", "nexthop"},
	} {
		said, err := w.onRouter(argv...)
		all += fmt.Sprintf("# router: %s\n%s\n%v\n", strings.Join(argv, " "), said, err)
	}
	return w.write(w.logs, "state.txt", all)
}
