package interop

import (
	"fmt"
	"os/user"
	"path/filepath"
	"strings"
)

// frrUser is the user of Debian's FRR. Its daemons check the groups of their user, so
// they cannot simply run as root.
const frrUser = "frr"

// frr returns FRR's daemons with their files. Each run has its own sockets and PID files,
// so that several do not conflict.
func (c Config) frr(dir string) (programs []program, files map[string]string, debian string) {
	owner := frrUser
	if _, err := user.Lookup(owner); err != nil {
		owner = "root" // not Debian's FRR, but one without the group frrvty, of which root would have to be a member
	}
	daemon := func(name string, more ...string) program {
		return program{
			name:   name,
			paths:  []string{"/usr/lib/frr/" + name, "/usr/sbin/" + name, "/usr/libexec/frr/" + name},
			socket: filepath.Join(dir, name+".vty"),
			args: append([]string{
				"-u", owner, "-g", owner,
				"-f", filepath.Join(dir, name+".conf"), "-i", filepath.Join(dir, name+".pid"),
				"-z", filepath.Join(dir, "zserv.api"), "--vty_socket", dir, "-P", "0", "--log", "stdout",
			}, more...),
		}
	}
	files = map[string]string{"zebra.conf": "hostname router\n", "bgpd.conf": c.bgpdConf()}
	port := "0"
	if c.Text != "" {
		port = "179"
	}
	programs = []program{daemon("zebra"), daemon("bgpd", "-p", port)}
	if c.BFD {
		files["bfdd.conf"] = "bfd\n profile fairlead\n  receive-interval 300\n  transmit-interval 300\n  detect-multiplier 3\n"
		programs = []program{programs[0], daemon("bfdd", "--bfdctl", filepath.Join(dir, "bfdd.sock")), programs[1]}
	}
	return programs, files, "frr"
}

// bgpdConf is the bgpd.conf of FRR 8.
func (c Config) bgpdConf() string {
	if c.Text != "" {
		return c.Text
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("hostname router")
	line("router bgp %d", c.AS)
	line(" bgp router-id %s", c.RouterID)
	line(" no bgp default ipv4-unicast")
	line(" no bgp ebgp-requires-policy")
	for _, p := range c.Peers {
		line(" neighbor %s remote-as %d", p.Address, p.AS)
		if p.Port != 179 {
			line(" neighbor %s port %d", p.Address, p.Port)
		}
		if c.LocalAddress.IsValid() && c.LocalAddress.Is4() == p.Address.Is4() {
			line(" neighbor %s update-source %s", p.Address, c.LocalAddress)
		}
		if p.Password != "" {
			line(" neighbor %s password %s", p.Address, p.Password)
		}
		line(" neighbor %s timers 3 9", p.Address)
		line(" neighbor %s timers connect 1", p.Address)
		if c.BFD {
			line(" neighbor %s bfd profile fairlead", p.Address)
		}
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		line(" address-family %s unicast", family)
		line("  maximum-paths ibgp %d", c.MaxPaths)
		line("  maximum-paths %d", c.MaxPaths)
		for _, p := range c.Peers {
			line("  neighbor %s activate", p.Address)
		}
		line(" exit-address-family")
	}
	return b.String()
}
