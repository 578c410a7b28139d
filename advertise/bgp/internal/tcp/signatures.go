package tcp

import (
	"os"
	"strconv"
	"strings"
)

// BadSignatures returns how many segments the kernel has dropped because their TCP MD5
// signature was wrong or missing, in the complete network namespace: the TcpExt counters
// TCPMD5NotFound, TCPMD5Unexpected and TCPMD5Failure (Linux's net/ipv4/proc.c).
func BadSignatures() (sum uint64, err error) {
	b, err := os.ReadFile("/proc/thread-self/net/netstat")
	if err != nil {
		return 0, err
	}
	lines := strings.Split(string(b), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for j := range min(len(names), len(values)) {
			if strings.HasPrefix(names[j], "TCPMD5") {
				n, _ := strconv.ParseUint(values[j], 10, 64)
				sum += n
			}
		}
	}
	return sum, nil
}
