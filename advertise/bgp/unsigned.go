package bgp

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// watchSignatures logs when segments are dropped because their TCP MD5 signature is wrong
// or missing: the sender only sees a timeout. The kernel counts them for the complete
// network namespace.
func (e *engine) watchSignatures() {
	defer e.wg.Done()
	before, err := badSignatures()
	if err != nil {
		return // no /proc: cannot be checked
	}
	tick := time.NewTicker(signatureEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			return
		}
		if now, err := badSignatures(); err == nil && now > before {
			e.log.Warn("segments were dropped for their TCP MD5 signature: a neighbor's password is missing, unexpected or different", "dropped", now-before)
			before = now
		}
	}
}

const signatureEvery = 5 * time.Second

// badSignatures sums the TcpExt counters TCPMD5NotFound, TCPMD5Unexpected and
// TCPMD5Failure (Linux's net/ipv4/proc.c).
func badSignatures() (sum uint64, err error) {
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
