package gather

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/internal/netlist"
)

// machineFiles are files that describe the machine, its load and its network.
var machineFiles = map[string]string{
	"os-release": "/etc/os-release", "meminfo": "/proc/meminfo", "loadavg": "/proc/loadavg", "pressure-cpu": "/proc/pressure/cpu",
	"cmdline": "/proc/cmdline", "netstat": "/proc/self/net/netstat", "snmp": "/proc/self/net/snmp", "snmp6": "/proc/self/net/snmp6", "softnet": "/proc/net/softnet_stat",
	"sockstat": "/proc/self/net/sockstat", "interrupts": "/proc/interrupts",
}

func (c *collector) files() {
	for name, path := range machineFiles {
		text, err := os.ReadFile(path)
		if err != nil {
			c.missed["machine/"+name] = err
			continue
		}
		c.machine[name] = text
	}
}

// machineCommands are run if they are installed, which they are not in images.
var machineCommands = map[string][]string{
	"links.txt": {"ip", "-details", "-statistics", "link"}, "addresses.txt": {"ip", "address"}, "routes4.txt": {"ip", "-4", "route", "show", "table", "all"},
	"routes6.txt": {"ip", "-6", "route", "show", "table", "all"}, "rules4.txt": {"ip", "-4", "rule"}, "rules6.txt": {"ip", "-6", "rule"},
	"nexthops.txt": {"ip", "nexthop"}, "neighbors.txt": {"ip", "neighbor"}, "sockets.txt": {"ss", "-tuanpi"}, "nftables.txt": {"nft", "list", "ruleset"},
	"iptables.txt": {"iptables-save"}, "ipvs.txt": {"ipvsadm", "--save", "--numeric"}, "sysctl-net.txt": {"sysctl", "net.core", "net.ipv4", "net.ipv6"},
	"bpf-net.txt": {"bpftool", "net"}, "bpf-programs.txt": {"bpftool", "prog"}, "kernel-log.txt": {"dmesg", "--ctime"},
}

// commands runs them, a few at the same time. Without ip, links and routes are read as the
// agent does.
func (c *collector) commands(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*commandTimeout) // all together
	defer cancel()
	var mu sync.Mutex
	var wait sync.WaitGroup
	slots := make(chan struct{}, 4)
	for name, words := range machineCommands {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			text, err := run(ctx, words[0], words[1:]...)
			mu.Lock()
			defer mu.Unlock()
			if len(text) > 0 {
				c.machine[name] = text
			}
			if err != nil {
				c.missed["machine/"+name] = err
			}
		})
	}
	wait.Wait()
	if c.machine["links.txt"] == nil {
		c.netlink()
	}
}

// mostRoutes limits how many routes are listed.
const mostRoutes = 20000

func (c *collector) netlink() {
	var links, routes, rules strings.Builder
	all, err := netlist.Whole(netlink.LinkList)
	for _, l := range all {
		a := l.Attrs()
		links.WriteString(strings.Join([]string{strconv.Itoa(a.Index), a.Name, l.Type(), "mtu", strconv.Itoa(a.MTU), a.Flags.String(), a.OperState.String(), a.HardwareAddr.String()}, " ") + "\n")
		addresses, _ := netlist.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
		for _, one := range addresses {
			links.WriteString("    " + one.String() + "\n")
		}
	}
	c.listed("links.txt", links.String(), err)
	err = nil
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		n := 0
		err = errors.Join(err, netlink.RouteListFilteredIter(family, &netlink.Route{}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			routes.WriteString(r.String() + "\n")
			n++
			return n < mostRoutes
		}))
	}
	c.listed("routes.txt", routes.String(), err)
	list, err := netlist.Whole(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	for _, r := range list {
		rules.WriteString(r.String() + "\n")
	}
	c.listed("rules.txt", rules.String(), err)
}

func (c *collector) listed(name, text string, err error) {
	c.machine[name] = []byte(text)
	delete(c.missed, "machine/"+name)
	if err != nil {
		c.missed["machine/"+name] = err
	}
}

// netCounters reads the counters of the network namespace, from pairs of lines with names and
// values (proc_net(5)).
func netCounters() map[string]uint64 {
	all := map[string]uint64{}
	for _, file := range []string{"/proc/self/net/netstat", "/proc/self/net/snmp"} {
		text, _ := os.ReadFile(file) // without it, there is nothing to compare
		var names []string
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if names == nil {
				names = fields
				continue
			}
			for i := 1; i < min(len(names), len(fields)); i++ {
				if n, err := strconv.ParseUint(fields[i], 10, 64); err == nil {
					all[names[i]] = n
				}
			}
			names = nil
		}
	}
	return all
}
