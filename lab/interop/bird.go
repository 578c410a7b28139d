package interop

import (
	"fmt"
	"path/filepath"
	"strings"
)

const birdSocket = "bird.ctl"

func (c Config) bird(dir string) (programs []program, files map[string]string, debian string) {
	conf, socket := filepath.Join(dir, "bird.conf"), filepath.Join(dir, birdSocket)
	return []program{{
		name:   "bird",
		paths:  []string{"/usr/sbin/bird", "/usr/sbin/bird2"},
		args:   []string{"-f", "-c", conf, "-s", socket, "-P", filepath.Join(dir, "bird.pid")},
		socket: socket,
	}}, map[string]string{"bird.conf": c.birdConf()}, "bird2"
}

// birdConf is the bird.conf of BIRD 2.
func (c Config) birdConf() string {
	if c.Text != "" {
		return c.Text
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("log stderr all;")
	line("router id %s;", c.RouterID)
	line("protocol device { scan time 1; }")
	// Next hops of iBGP are resolved over directly connected networks.
	line("protocol direct { ipv4; ipv6; }")
	for _, family := range []string{"ipv4", "ipv6"} {
		line("protocol kernel kernel_%s {", family)
		line("\tmerge paths on limit %d;", c.MaxPaths)
		line("\tmetric %d;", c.Metric)
		line("\t%s { import none; export where source = RTS_BGP; };", family)
		line("}")
	}
	if c.BFD {
		timing := "{ interval 300 ms; multiplier 3; idle tx interval 300 ms; }"
		line("protocol bfd { interface \"*\" %s; multihop %s; }", timing, timing)
	}
	for i, p := range c.Peers {
		line("protocol bgp reflector_%d {", i+1)
		if c.LocalAddress.IsValid() && c.LocalAddress.Is4() == p.Address.Is4() {
			line("\tlocal %s as %d;", c.LocalAddress, c.AS)
		} else {
			line("\tlocal as %d;", c.AS)
		}
		line("\tneighbor %s port %d as %d;", p.Address, p.Port, p.AS)
		if p.Password != "" {
			line("\tpassword \"%s\";", p.Password)
		}
		line("\thold time 9; keepalive time 3;")
		line("\tconnect delay time 1; connect retry time 1; error wait time 1, 2;")
		if c.BFD {
			line("\tbfd on;")
		}
		line("\tipv4 { import all; export none; add paths rx; };")
		line("\tipv6 { import all; export none; add paths rx; };")
		line("}")
	}
	return b.String()
}
