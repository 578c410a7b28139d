// Package keepalived converts keepalived.conf(5): virtual servers become Services, and
// everything else is reported. A text passes through lines.go (comments, includes,
// conditions, definitions), tree.go (blocks), read.go and server.go (virtual servers), and
// check.go (checkers). The package opens no files and does not access the kernel.
package keepalived

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/source/importer"
)

// File is a configuration file.
type File struct {
	Name string
	Text []byte
}

// Options supply what is not in a configuration.
type Options struct {
	// ConfigID selects lines that begin with "@", like keepalived's option of that name;
	// empty matches none.
	ConfigID string
	// Marks are the destinations of the packets with a fwmark.
	Marks importer.Marks
	// Include returns the files of an include, whose pattern is relative to the directory
	// of the including file; nil for no files.
	Include func(from, pattern string) ([]File, error)
}

// Read converts a configuration to manifests. The error is a SyntaxError.
func Read(f File, o Options) (*importer.Result, error) {
	r := &reader{options: o, lvs: importer.NewLVS(), groups: map[string]*node{}, served: map[netip.Addr]bool{}}
	lines, losses, err := expand(f, o)
	if err != nil {
		return nil, err
	}
	r.lvs.Lose(losses...)
	tree, err := parse(lines)
	if err != nil {
		return nil, err
	}
	for _, n := range tree {
		if n.word() == "virtual_server_group" {
			r.group(n)
		}
	}
	for _, n := range tree {
		if n.word() == "virtual_server" {
			r.virtualServer(n)
		}
	}
	// This requires all served addresses.
	for _, n := range tree {
		r.rest(n)
	}
	r.lvs.Sort()
	return &r.lvs.Result, nil
}

// reader converts blocks to manifests.
type reader struct {
	options Options
	lvs     *importer.LVS
	groups  map[string]*node
	// served are the addresses of virtual servers.
	served map[netip.Addr]bool
}

func (r *reader) lose(at importer.At, what, why, fix string) {
	r.lvs.Lose(importer.Loss{At: at, What: what, Why: why, Fix: fix})
}

func (r *reader) group(n *node) {
	name := n.arg(1)
	if _, twice := r.groups[name]; twice {
		r.lose(n.at, "virtual_server_group "+name, "there is one of that name before", "give it another name")
		return
	}
	r.groups[name] = n
}

// others are blocks and words without a counterpart, with reason and fix.
var others = map[string][2]string{
	"global_defs":         {"what it sets is keepalived's own", "fairlead agent --help has Fairlead's settings"},
	"net_namespace":       {"an agent runs where it is started", "start it by ip netns exec, or as a pod"},
	"net_namespace_ipvs":  {"an agent runs where it is started", "start it by ip netns exec, or as a pod"},
	"vrrp_sync_group":     noMaster,
	"vrrp_script":         noMaster,
	"vrrp_track_process":  noMaster,
	"vrrp_track_file":     noMaster,
	"static_track_group":  noMaster,
	"garp_group":          noMaster,
	"track_file":          {"there are no files that change weights", "write weights into the manifests: they are watched"},
	"static_ipaddress":    notOurs,
	"static_routes":       notOurs,
	"static_rules":        notOurs,
	"bfd_instance":        {"BFD watches the BGP peers by itself", "fairlead agent --bfd"},
	"linkbeat_interfaces": {"BFD watches the BGP peers by itself", "fairlead agent --bfd"},
	"SSL":                 {"checks speak no TLS", "let a check ask a port without it: fairlead.io/health-check-port"},
}

var (
	noMaster = [2]string{"there is no master that would move: every balancer is active behind ECMP", "leave it out"}
	notOurs  = [2]string{"Fairlead does not configure the machine's network", "let the machine's own configuration do it"}
)

// rest reports what is not a virtual server.
func (r *reader) rest(n *node) {
	word := n.word()
	switch {
	case word == "virtual_server", word == "virtual_server_group":
	case word == "vrrp_instance":
		r.vrrp(n)
	case others[word] != [2]string{}:
		why := others[word]
		r.lose(n.at, n.title()+inside(n), why[0], why[1])
	default:
		r.lose(n.at, n.title(), "the word is not known here", "if it matters, see what it does in keepalived.conf(5)")
	}
}

// inside lists the words of global_defs without their values, which may be passwords.
func inside(n *node) string {
	if n.word() != "global_defs" || len(n.block) == 0 {
		return ""
	}
	var words []string
	for _, c := range n.block {
		if !slices.Contains(words, c.word()) {
			words = append(words, c.word())
		}
	}
	return " (" + strings.Join(words, ", ") + ")"
}

// vrrp reports an instance, and its addresses without a virtual server.
func (r *reader) vrrp(n *node) {
	r.lose(n.at, n.title(), "there is no master: every balancer is active behind ECMP",
		"announce the Services' addresses by BGP: fairlead agent --peer")
	for _, c := range n.block {
		if c.word() != "virtual_ipaddress" && c.word() != "virtual_ipaddress_excluded" {
			continue
		}
		var unserved []string
		for _, a := range c.block {
			text, _, _ := strings.Cut(a.word(), "/")
			if addr, err := netip.ParseAddr(text); err != nil || !r.served[addr] {
				unserved = append(unserved, a.word())
			}
		}
		if len(unserved) > 0 {
			r.lose(c.at, c.word()+" "+strings.Join(unserved, ", "), "without a virtual_server there is no Service that would be announced",
				"keep it where it is, or write a Service")
		}
	}
}
