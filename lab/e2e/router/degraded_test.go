package router_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
)

// TestBadNextHop checks a router whose only path to one of four load balancers is a
// device without a carrier, so that the kernel rejects its next hop. The routes use the
// other three, status reports what is degraded and why, and everything recovers when the
// path is back.
func TestBadNextHop(t *testing.T) {
	u := newUpstream(t)
	u.ip("link", "add", "dead", "type", "veth", "peer", "name", "far")
	u.ip("link", "set", "dead", "up") // its other end stays down
	u.ip("route", "add", "10.0.1.4/32", "dev", "dead")
	u.reflector("reflector", "10.0.0.109", "10.0.0.109")
	u.reflector("second", "10.0.0.108", "10.0.0.109")
	u.router("--router-id", "10.0.0.110", "--peer", "10.0.0.109,10.0.0.108")
	u.speak("10.128.0.0/24")
	u.until("20: 10.0.1.1 10.0.1.2 10.0.1.3")
	const why = "next hop 10.0.1.4 dev dead: network is down: Carrier for nexthop device is down"
	u.shows("status", "routes      3 of 4 in the kernel, degraded prefixes: 1", "route 10.128.0.0/24: degraded since ", why)
	u.shows("get routes", "10.128.0.0/24 via 10.0.1.4 is not in the kernel: "+why)

	u.ip("route", "del", "10.0.1.4/32", "dev", "dead")
	u.until(allFour)
	u.shows("status", "routes      4 of 4 in the kernel\n", "problems    none")
}

// ip changes the router's network.
func (u *upstream) ip(args ...string) {
	u.t.Helper()
	testkit.Do(u.t, u.l.Host("router").Namespace(), func() error {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
		return nil
	})
}

// shows waits until a command of the router's process prints all of these.
func (u *upstream) shows(command string, want ...string) {
	u.t.Helper()
	testkit.Eventually(u.t, fixture.Within, func() error {
		out, err := exec.Command(fixture.Binary, append(strings.Fields(command), "--socket", filepath.Join(u.dir, "router.sock"))...).CombinedOutput()
		for _, w := range want {
			if err == nil && !strings.Contains(string(out), w) {
				err = fmt.Errorf("%s shows\n%s\nwithout %q", command, out, w)
			}
		}
		return err
	})
}
