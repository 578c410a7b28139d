package netns

import (
	"fmt"
	"os"
	"strings"
)

// WriteSysctl sets "net.ipv4.ip_forward" and the like in the calling thread's
// namespace. A name part with a dot in it (of an interface) is written with a
// slash, as sysctl(8) has it: "net.ipv4.conf.eth0/1.rp_filter".
func WriteSysctl(name, value string) error {
	path := "/proc/sys/" + strings.NewReplacer(".", "/", "/", ".").Replace(name)
	// Not created where absent: that is how an unknown name shows.
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
