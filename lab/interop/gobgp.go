package interop

import "path/filepath"

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
