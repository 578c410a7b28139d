package ipvs

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// flowState is a kernel connection state in dataplane.Flow's terms, with its timeout
// (net/netfilter/ipvs/ip_vs_proto_*.c).
type flowState struct {
	word string
	life time.Duration
}

const (
	opening     = "opening"
	established = "established"
	finishing   = "finishing"
	closed      = "closed"
)

var flowStates = map[string]flowState{
	"SYN_SENT": {opening, 2 * time.Minute}, "SYN_RECV": {opening, time.Minute}, "SYNACK": {opening, 2 * time.Minute},
	"ESTABLISHED": {established, 15 * time.Minute},
	"FIN_WAIT":    {finishing, 2 * time.Minute}, "CLOSE_WAIT": {finishing, time.Minute}, "LAST_ACK": {finishing, 30 * time.Second},
	"TIME_WAIT": {closed, 2 * time.Minute}, "CLOSE": {closed, 10 * time.Second}, "NONE": {closed, 2 * time.Second},
	"UDP":   {"udp", 5 * time.Minute},
	"INIT1": {opening, 3 * time.Second}, "INIT": {opening, 30 * time.Second}, "C-SENT": {opening, 30 * time.Second},
	"C-REPLIED": {opening, 30 * time.Second}, "C-WAIT": {opening, 30 * time.Second}, "COOKIE": {opening, 30 * time.Second},
	"C-ECHOED": {opening, 30 * time.Second},
	"S-SENT":   {finishing, 4 * time.Second}, "S-RECEIVED": {finishing, 4 * time.Second}, "S-ACK-SENT": {finishing, 4 * time.Second},
	"REJECTED": {closed, 4 * time.Second}, "CLOSED": {closed, 4 * time.Second},
}

// EachFlow returns the tracked flows that match a query, in no order. It may be called
// from any goroutine. Concurrent changes may be missed. An error ends it.
func (d *DataPlane) EachFlow(q dataplane.FlowQuery) iter.Seq2[dataplane.Flow, error] {
	return func(yield func(dataplane.Flow, error) bool) {
		var file *os.File
		err := d.inside(func() (err error) {
			file, err = os.Open("/proc/thread-self/net/ip_vs_conn")
			return err
		})
		if err != nil {
			yield(dataplane.Flow{}, fmt.Errorf("ipvs: read flows: %w", err))
			return
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		q.Give(yield, func() ([]dataplane.Flow, bool, error) { return someFlows(q, lines) })
	}
}

// flowsAtOnce is the number of flows per read.
const flowsAtOnce = 1024

// someFlows reads the next flows, and reports whether there may be more.
func someFlows(q dataplane.FlowQuery, lines *bufio.Scanner) (found []dataplane.Flow, more bool, err error) {
	for lines.Scan() {
		if f, ok := readFlow(lines.Text()); ok && q.Takes(f) {
			if found = append(found, f); len(found) == flowsAtOnce {
				return found, true, nil
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, false, fmt.Errorf("ipvs: read flows: %w", err)
	}
	return found, false, nil
}

// readFlow parses a line of /proc/net/ip_vs_conn. It returns false for the header, and
// for the templates of client persistence.
func readFlow(line string) (f dataplane.Flow, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 9 || f.Protocol.UnmarshalText([]byte(fields[0])) != nil || f.Protocol == service.AnyProtocol {
		return f, false
	}
	for i, at := range []*netip.AddrPort{&f.Client, &f.VIP, &f.Server} {
		if *at, ok = readEndpoint(fields[1+2*i], fields[2+2*i]); !ok {
			return f, false
		}
	}
	left, err := strconv.ParseUint(fields[8], 10, 31)
	state, known := flowStates[fields[7]]
	if err != nil || f.Client.Port() == 0 {
		return f, false
	}
	if !known {
		state.word = strings.ToLower(fields[7])
	}
	f.State, f.Idle = state.word, max(0, state.life-time.Duration(left)*time.Second)
	return f, true
}

// readEndpoint parses an address, in hexadecimal for IPv4, and a port in hexadecimal.
func readEndpoint(addr, port string) (netip.AddrPort, bool) {
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	if word, err := hex.DecodeString(addr); err == nil && len(word) == 4 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(word)), uint16(p)), true
	}
	a, err := netip.ParseAddr(strings.Trim(addr, "[]"))
	return netip.AddrPortFrom(a, uint16(p)), err == nil
}
