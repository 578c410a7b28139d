package guest

import "os"

// HasIPVS says that the kernel here has IPVS loaded.
func HasIPVS() bool {
	_, err := os.Stat("/proc/net/ip_vs")
	return err == nil
}
