package gather

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
)

func agentsPart(o doctor.Options) part {
	return fact(func(f *doctor.Facts) *doctor.Known[[]doctor.Agent] { return &f.Agents }, with(o, agents))
}

// agents queries all agents with a socket here, in parallel.
func agents(ctx context.Context, o doctor.Options) ([]doctor.Agent, error) {
	paths := []string{o.Socket}
	if o.Socket == "" {
		var err error
		if paths, err = socket.In(socket.Dir); err != nil {
			return nil, err
		}
	}
	all := make([]doctor.Agent, len(paths))
	var wait sync.WaitGroup
	for i, path := range paths {
		wait.Go(func() { all[i] = ask(ctx, path) })
	}
	wait.Wait()
	// A socket that was specified but does not exist is no agent.
	present := all[:0]
	for _, a := range all {
		if a.Socket != "" {
			present = append(present, a)
		}
	}
	return present, nil
}

// ask returns an Agent without a Socket if the file does not exist.
func ask(ctx context.Context, path string) doctor.Agent {
	a := doctor.Agent{Socket: path}
	pid, err := Listener(ctx, path)
	switch {
	case errors.Is(err, unix.ENOENT):
		return doctor.Agent{}
	case errors.Is(err, unix.ECONNREFUSED):
		a.Stale = true
		return a
	case err != nil:
		a.Error = err.Error()
		return a
	}
	a.PID = pid
	s, err := status.Fetch(ctx, path)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	a.Role, a.Version = s.Role, s.Version
	for _, p := range s.Problems {
		a.Problems = append(a.Problems, p.String())
	}
	for _, d := range s.Degraded {
		a.Degraded = append(a.Degraded, d.String())
	}
	if s.DataPlane != nil {
		a.Warnings, a.IPVS = s.DataPlane.Warnings, s.DataPlane.Kind == "ipvs"
		if !a.IPVS && isHere(pid) {
			a.Attached = s.DataPlane.Interfaces()
		}
	}
	addresses := map[string]bool{}
	for _, svc := range s.Services {
		for _, f := range svc.Frontends {
			for _, b := range f.Backends {
				addresses[b.Address.Addr().String()] = true
			}
		}
	}
	a.Backends = len(addresses)
	if r, err := status.FetchReady(ctx, path); err != nil {
		a.Waits = []string{fmt.Sprintf("cannot determine whether it is ready: %v", err)}
	} else if !r.Ready {
		a.Waits = r.Waits
	}
	return a
}

// isHere reports whether a process is in this network namespace.
func isHere(pid int) bool {
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	own, err2 := os.Readlink("/proc/self/ns/net")
	return err == nil && err2 == nil && its == own
}

// Listener returns the process that listens on a unix socket; 0 if it is in another PID
// namespace.
func Listener(ctx context.Context, path string) (pid int, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); failed == nil {
			pid = int(cred.Pid)
		}
	})
	return pid, errors.Join(err, failed)
}
