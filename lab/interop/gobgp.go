package interop

import (
	"fmt"
	"path/filepath"
)

const gobgpSocket = "gobgp.ctl"

// gobgp returns GoBGP's daemon; its configuration is only Text.
func (c Config) gobgp(dir string) (programs []program, files map[string]string, debian string) {
	socket := filepath.Join(dir, gobgpSocket)
	return []program{{
		name:   "gobgpd",
		paths:  []string{"/usr/bin/gobgpd"},
		args:   []string{"-f", filepath.Join(dir, "gobgpd.toml"), "--api-hosts", "unix://" + socket, "--pprof-disable", "-p"},
		socket: socket,
	}}, map[string]string{"gobgpd.toml": c.Text}, "gobgpd"
}

// zebra returns GoBGP's daemon next to FRR's zebra, which writes the routes to the kernel.
func (c Config) zebra(dir string) (programs []program, files map[string]string, debian string) {
	both, files, debian := c.frr(dir)
	speaker, text, more := c.gobgp(dir)
	if c.Program != "" {
		speaker[0].paths = []string{c.Program}
	}
	delete(files, "bgpd.conf")
	for name, config := range text {
		files[name] = config + fmt.Sprintf(zebraText, filepath.Join(dir, "zserv.api"))
	}
	return []program{both[0], speaker[0]}, files, debian + " or " + more
}

// zebraText lets GoBGP send all paths of a route to zebra.
const zebraText = `
[global.use-multiple-paths.config]
  enabled = true
[zebra.config]
  enabled = true
  url = "unix:%s"
  version = 6
  software-name = "frr8.1"
`
