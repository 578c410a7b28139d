package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/kube/nodes"
	"github.com/fairlead/fairlead/vdn"
)

// start runs fairlead on a host.
func (w *world) start(host *lab.Host, args ...string) (*lab.Process, error) {
	log, err := os.OpenFile(filepath.Join(w.logs, host.Name()+"-"+args[0]+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(w.program(), args...)
	cmd.Stdout, cmd.Stderr = log, log
	return host.Start(cmd)
}

// startBalancer runs a load balancer for the cluster's Services on lb.
func (w *world) startBalancer() error {
	_, err := w.start(w.Host("lb"), "agent", "--kubernetes", "--kubeconfig", w.Kubeconfig, "--role", "balancer", "--interface", "eth1,eth2",
		"--bpffs", "/sys/fs/bpf", "--socket", w.file("lb.sock"))
	return err
}

// ask queries the controller in its pod through its REST interface.
func (w *world) ask(path string) (string, error) {
	authority, _ := w.Authority()
	pem, err := os.ReadFile(authority)
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return nodes.Get(context.Background(), w.Control, "https://"+w.controller.addr+":7473/v1/"+path, token, &tls.Config{RootCAs: roots, ServerName: vdnAddr})
}

// get requests a VIP from outside.
func (w *world) get(ctx context.Context, vip string) (string, error) {
	return nodes.Get(ctx, w.Host("client"), "http://"+vip+":80/hostname", "", nil)
}

// stored returns an error if the controller's answer differs.
func (w *world) stored(path, want string) error {
	said, err := w.ask(path)
	if err == nil && strings.TrimSpace(said) != want {
		err = fmt.Errorf("%s: %s, want %s", path, said, want)
	}
	return err
}

func (w *world) attachments() (all []vdn.Attachment, err error) {
	said, err := w.ask("attachments")
	if err == nil {
		err = json.Unmarshal([]byte(said), &all)
	}
	return all, err
}

// leases returns an error if the number of leases differs; -1 means any number.
func (w *world) leases(want int) error {
	all, err := w.attachments()
	if err == nil && want >= 0 && len(all) != want {
		err = fmt.Errorf("%d leases, want %d: %v", len(all), want, all)
	}
	return err
}

// leaseText returns all leases, for comparison.
func (w *world) leaseText() (string, error) { return w.ask("attachments") }

// leaseOf returns the only lease of a pod.
func (w *world) leaseOf(pod string) (string, error) {
	all, err := w.attachments()
	var ids []string
	for _, a := range all {
		if a.Owner == "default/"+pod && a.Phase == vdn.Up {
			ids = append(ids, a.ID)
		}
	}
	if err == nil && len(ids) != 1 {
		err = fmt.Errorf("%s has the leases %q, want one", pod, ids)
	}
	return strings.Join(ids, " "), err
}

// pods returns the names of a workload's running pods, sorted.
func (w *world) pods(ctx context.Context, of string) ([]string, error) {
	said, err := w.Kubectl(ctx, "get", "pods", "--selector", "app="+of, "--field-selector", "status.phase=Running", "--output", `jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}`)
	all := lines(said)
	if err == nil && len(all) < 2 {
		err = fmt.Errorf("pods of %s: %q", of, all)
	}
	return all, err
}

// addresses returns the addresses of a workload's pods.
func (w *world) addresses(ctx context.Context, of string) (all []netip.Addr, err error) {
	said, err := w.Kubectl(ctx, "get", "pods", "--selector", "app="+of, "--output", `jsonpath={range .items[*]}{.status.podIP}{"\n"}{end}`)
	for _, line := range lines(said) {
		a, e := netip.ParseAddr(line)
		err = errors.Join(err, e)
		all = append(all, a)
	}
	if err == nil && len(all) != 4 {
		err = fmt.Errorf("pods of %s have the addresses %v", of, all)
	}
	return all, err
}

// answers waits until a pod reaches another.
func (w *world) answers(ctx context.Context, from string, to netip.AddrPort) error {
	return w.await(ctx, from+" asks "+to.String(), func() error {
		_, err := w.Kubectl(ctx, "exec", from, "--", "curl", "--silent", "--show-error", "--fail", "--max-time", "5", "http://"+to.String()+"/hostname")
		return err
	})
}

// everywhere returns what could be left on the nodes, as text: their links, the qdiscs
// and filters at the uplink, records of plugins, pods' namespaces, and pins.
func (w *world) everywhere() (map[string]string, error) {
	all := map[string]string{}
	for _, n := range w.Nodes {
		links, err := w.links(n)
		if err != nil {
			return nil, err
		}
		all[n.Name+" links"] = links
		said, err := n.Place.Run(exec.Command("sh", "-c", "tc qdisc show dev eth2; tc filter show dev eth2 egress; tc filter show dev eth2 ingress"))
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, said)
		}
		all[n.Name+" eth2"] = said
		for _, dir := range []string{"/var/lib/cni/fairlead", "/var/lib/cni/multus", "/run/netns", "/sys/fs/bpf/fairlead/vdn"} {
			err := n.Place.Do(func() error {
				return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
					if err == nil && !e.IsDir() && e.Name() != "lock" {
						all[n.Name+" "+dir] += path + " "
					}
					if errors.Is(err, fs.ErrNotExist) {
						return nil // gone, or never created
					}
					return err
				})
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// links returns a node's devices except those of bridged pods, sorted: name, kind and
// alias.
func (w *world) links(n *nodes.Node) (string, error) {
	said, err := n.Place.Run(exec.Command("ip", "-details", "-json", "link", "show"))
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	var links []struct {
		Name  string `json:"ifname"`
		Alias string `json:"ifalias"`
		Info  struct {
			Kind string `json:"info_kind"`
		} `json:"linkinfo"`
	}
	if err := json.Unmarshal([]byte(said), &links); err != nil {
		return "", err
	}
	var all []string
	for _, l := range links {
		if strings.HasPrefix(l.Name, "eth") || strings.HasPrefix(l.Name, "nic") || l.Info.Kind == "macvlan" || l.Alias != "" {
			all = append(all, strings.TrimSpace(l.Name+" "+l.Info.Kind+" "+l.Alias))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", "), nil
}
