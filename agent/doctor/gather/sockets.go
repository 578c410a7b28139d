package gather

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/agent/doctor"
)

// sockets lists who has bound the ports that are relevant to the roles.
func sockets(ctx context.Context, o doctor.Options) (all []doctor.Socket, err error) {
	wanted := o.Ports()
	inodes := map[string]int{} // maps to the index in all
	for _, table := range []struct {
		file string
		udp  bool
	}{{"tcp", false}, {"tcp6", false}, {"udp", true}, {"udp6", true}} {
		text, err := os.ReadFile("/proc/self/net/" + table.file)
		if os.IsNotExist(err) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			port, inode, ok := boundPort(line, table.udp)
			if ok && slices.Contains(wanted, port) {
				inodes[inode] = len(all)
				all = append(all, doctor.Socket{UDP: table.udp, Port: port})
			}
		}
	}
	if len(all) > 0 {
		findOwners(ctx, inodes, all)
	}
	return all, nil
}

// boundPort parses a line of /proc/net/tcp or udp (proc(5)): the port of a listening TCP
// socket, or of a UDP socket without a peer.
func boundPort(line string, udp bool) (port uint16, inode string, ok bool) {
	const listens, closed = "0A", "07"
	fields := strings.Fields(line)
	if len(fields) < 10 || (fields[3] != listens || udp) && (fields[3] != closed || !udp) {
		return 0, "", false
	}
	_, hex, _ := strings.Cut(fields[1], ":")
	n, err := strconv.ParseUint(hex, 16, 16)
	return uint16(n), fields[9], err == nil
}

// findOwners looks for sockets among the open files of all accessible processes.
func findOwners(ctx context.Context, inodes map[string]int, all []doctor.Socket) {
	left := len(inodes)
	for _, pid := range pids() {
		if left == 0 || ctx.Err() != nil {
			return
		}
		folder := fmt.Sprintf("/proc/%d/fd", pid)
		files, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		for _, f := range files {
			target, _ := os.Readlink(filepath.Join(folder, f.Name()))
			inode := strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")
			if i, found := inodes[inode]; found && all[i].PID == 0 {
				all[i].PID, all[i].Comm = pid, read(fmt.Sprintf("/proc/%d/comm", pid))
				left--
			}
		}
	}
}

func pids() (all []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// processes lists the processes that may interfere.
func processes(ctx context.Context) (all []doctor.Process, err error) {
	wanted := doctor.Comms()
	for _, pid := range pids() {
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		if comm := read(fmt.Sprintf("/proc/%d/comm", pid)); slices.Contains(wanted, comm) {
			all = append(all, doctor.Process{PID: pid, Comm: comm})
		}
	}
	return all, nil
}

// ipvsServices counts the virtual services of this network namespace without loading the
// module.
func ipvsServices(context.Context) (n int, err error) {
	text, err := os.ReadFile("/proc/self/net/ip_vs")
	if os.IsNotExist(err) {
		return 0, nil
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && slices.Contains([]string{"TCP", "UDP", "SCTP", "FWM"}, fields[0]) {
			n++
		}
	}
	return n, err
}
