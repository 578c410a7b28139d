package interop

import "path/filepath"

// exabgp returns ExaBGP; its configuration is only Text, and it accepts no commands.
func (c Config) exabgp(dir string) (programs []program, files map[string]string, debian string) {
	return []program{{
		name:  "exabgp",
		paths: []string{"/usr/sbin/exabgp"},
		args:  []string{filepath.Join(dir, "exabgp.conf")},
		env:   []string{"exabgp_daemon_user=root", "exabgp_api_cli=false", "exabgp_log_destination=stdout"},
	}}, map[string]string{"exabgp.conf": c.Text}, "exabgp"
}
