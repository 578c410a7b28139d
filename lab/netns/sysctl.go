package netns

import (
	"fmt"
	"os"
	"strings"
)

// WriteSysctl sets "net.ipv4.ip_forward" and the like in the calling thread's namespace.
// A name part that contains a dot (an interface) is written with a slash, as for
// sysctl(8): "net.ipv4.conf.eth0/1.rp_filter".
func WriteSysctl(name, value string) error {
	path := "/proc/sys/" + strings.NewReplacer(".", "/", "/", ".").Replace(name)
	// Not created if missing, so that an unknown name is an error.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("sysctl %s: %w", name, err)
	}
	defer f.Close()
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("sysctl %s = %s: %w", name, value, err)
	}
	return nil
}
