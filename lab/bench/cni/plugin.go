package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/multisite"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
)

// controller is the VDN controller of a site's domain, which the plugin queries.
type controller struct {
	url, folder string
	asks        *client.Client
}

// startController runs a controller in a site's node, with additional arguments, and
// configures the networks of the pods there.
func (n *network) startController(ctx context.Context, site *multisite.Site, more ...string) (*controller, error) {
	folder, err := os.MkdirTemp(sandbox.WorkDir, site.Name+"-")
	if err != nil {
		return nil, err
	}
	c := &controller{url: "unix://" + filepath.Join(folder, "vdn.sock"), folder: folder}
	name := site.Name + "-vdn"
	args := []string{"vdn", "controller", "--domain", site.Domain(), "--listen", c.url, "--data", filepath.Join(folder, "vdn")}
	if err := n.start(n.Lab.Host(site.Node), name, append(args, more...)...); err != nil {
		return nil, err
	}
	if c.asks, err = client.New(client.Config{URL: c.url}); err != nil {
		return nil, err
	}
	if _, ok := cluster.Await(ctx, 10*time.Millisecond, cluster.StartLimit, func() bool { err = c.asks.Health(ctx); return err == nil }); !ok {
		return nil, fmt.Errorf("%s: the controller does not answer: %w: %s", site.Name, err, cluster.LastLines(n.logFile(name)))
	}
	for _, network := range networks(site) {
		if err := c.asks.PutNetwork(ctx, network); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// networks returns the networks of the pods that are attached without a bridge.
func networks(site *multisite.Site) []vdn.Network {
	subnet := func(p netip.Prefix) []vdn.Subnet {
		return []vdn.Subnet{{
			CIDR: p, Gateway: multisite.Nth(p, 1),
			Ranges: []vdn.Range{{First: multisite.Nth(p, firstPod), Last: multisite.Nth(p, firstPod)}},
		}}
	}
	return []vdn.Network{
		{Name: Macvlan, Mode: vdn.Macvlan, Devices: []string{multisite.NodeDev}, Subnets: subnet(site.OnNode())},
		{Name: HostDevice, Mode: vdn.HostDevice, Devices: []string{multisite.SpareDev}, Subnets: subnet(site.OnSpare())},
	}
}

// plugged creates a pod and runs fairlead-cni to attach it to the network of its kind, as
// a container runtime does.
func (n *network) plugged(ctx context.Context, site *multisite.Site, kind, name string) (place, error) {
	if err := n.Lab.Add(ctx, lab.Topology{Hosts: []lab.HostSpec{{Name: name, Is: "pod"}}}); err != nil {
		return place{}, err
	}
	c := n.controllers[site]
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "1.1.0", "name": kind, "type": "fairlead-cni", "controller": c.url, "node": site.Node,
		"dataDir": filepath.Join(c.folder, "cni"),
	})
	if err != nil {
		return place{}, err
	}
	pod := n.Lab.Host(name)
	cmd := exec.CommandContext(ctx, n.o.Plugin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+name, "CNI_NETNS="+pod.Namespace().Path(),
		"CNI_IFNAME="+podDev, "CNI_PATH="+filepath.Dir(n.o.Plugin))
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(conf), &said, os.Stderr
	p, err := n.Lab.Host(site.Node).Start(cmd)
	if err != nil {
		return place{}, err
	}
	if err := p.Wait(); err != nil {
		return place{}, fmt.Errorf("%s ADD: %w: %.1000s", n.o.Plugin, err, &said)
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(said.Bytes(), &result); err != nil || len(result.IPs) != 1 {
		return place{}, fmt.Errorf("%s ADD: want a result with one address: %v: %.1000s", n.o.Plugin, err, &said)
	}
	return place{pod, result.IPs[0].Address.Addr()}, nil
}

// start runs fairlead in a host, with a log file.
func (n *network) start(h *lab.Host, name string, args ...string) error {
	p, err := h.StartLogged(exec.Command(n.o.Binary, args...), n.logFile(name))
	if err != nil {
		return err
	}
	return p.GoFirst()
}

func (n *network) logFile(name string) string { return filepath.Join(n.o.Logs, name+".log") }
