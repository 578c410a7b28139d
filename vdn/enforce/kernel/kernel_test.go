package kernel

import (
	"fmt"
	"slices"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/conformance/networks"
	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
	"github.com/fairlead/fairlead/vdn/enforce"
)

func TestMain(m *testing.M) { refusals.Main(m) }

func pins(node *lab.Host) string { return "/sys/fs/bpf/" + node.Name() }

func TestConformance(t *testing.T) {
	networks.Run(t, networks.Rig{
		Open: func(n networks.Node) (enforce.Enforcer, error) {
			return Open(Config{PinDir: pins(n.Host), Uplinks: n.Uplinks, Gateway: n.Gateway})
		},
		Gateways: true, Lengths: true, Break: breakIt, Held: held,
	})
}

// breakIt removes HTB from the uplink and the programs from the pod.
func breakIt(t *testing.T, node *lab.Host, pod *domain.Pod) {
	t.Helper()
	testkit.Do(t, node.Namespace(), func() error { return removeRates(nil) })
	testkit.Do(t, pod.Namespace(), func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			detachAll(t, l)
		}
		return nil
	})
}

// held lists our queues, classes and programs.
func held(t *testing.T, node *lab.Host, pod *domain.Pod) (all []string) {
	t.Helper()
	testkit.Do(t, node.Namespace(), func() error {
		link, err := netlink.LinkByName(domain.Uplink)
		if err != nil {
			return err
		}
		classes, err := classesOf(link)
		for minor, c := range classes {
			all = append(all, fmt.Sprintf("%s class %x %d %d %d", node.Name(), minor, c.Rate, c.Ceil, c.Quantum))
		}
		leaves, leavesErr := leavesOf(link)
		for minor := range leaves {
			all = append(all, fmt.Sprintf("%s queue of %x", node.Name(), minor))
		}
		all = append(all, programsAt(t, link, node.Name())...)
		if err == nil {
			err = leavesErr
		}
		return err
	})
	if err := ns.WithNetNSPath(pod.Namespace().Path(), func(ns.NetNS) error {
		link, err := netlink.LinkByName(pod.Att.Interface)
		if err == nil {
			all = append(all, programsAt(t, link, pod.Name())...)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}
