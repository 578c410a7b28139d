package openvswitch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/conformance/networks"
	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const bridge = "vdn"

func TestConformance(t *testing.T) {
	r := &rig{t: t, running: map[string]bool{}}
	networks.Run(t, networks.Rig{
		Attach: r.attach,
		Open: func(n networks.Node) (enforce.Enforcer, error) {
			return Open(Config{Bridge: bridge, RunDir: r.dir(n.Host), Uplinks: n.Uplinks})
		},
		Ready: func(d *domain.Domain) error {
			for _, end := range [][2]string{{"gateway", domain.Uplink}, {"gateway", domain.Wide}, {"outside", "eth0"}} {
				if err := lab.TxChecksumOff(d.Host(end[0]).Namespace(), end[1]); err != nil {
					return err
				}
			}
			return nil
		},
		Break: func(t *testing.T, node *lab.Host, _ *domain.Pod) {
			if _, err := r.on(node).ofctl(t.Context(), "", "del-flows", bridge); err != nil {
				t.Fatal(err)
			}
		},
		Held: r.held,
	})
}

// rig has an Open vSwitch in userspace on each node.
type rig struct {
	t       *testing.T
	running map[string]bool
}

func (r *rig) dir(node *lab.Host) string { return filepath.Join("/run/fairlead", "ovs-"+node.Name()) }

func (r *rig) on(node *lab.Host) *Switch {
	return &Switch{cfg: Config{Bridge: bridge, RunDir: r.dir(node)}}
}

// attach gives a pod a port of its node's switch.
func (r *rig) attach(node, pod *lab.Host, device string) (up vdn.UpReport, err error) {
	if !r.running[node.Name()] {
		if err := r.start(node); err != nil {
			return up, err
		}
		r.running[node.Name()] = true
	}
	port := "p-" + pod.Name()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = port
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: device, PeerNamespace: netlink.NsFd(pod.Namespace().FD())}
	if err := node.Netlink().LinkAdd(veth); err != nil {
		return up, err
	}
	if err := node.Netlink().LinkSetUp(veth); err != nil {
		return up, err
	}
	if err := lab.TxChecksumOff(pod.Namespace(), device); err != nil {
		return up, err
	}
	link, err := pod.Netlink().LinkByName(device)
	if err != nil {
		return up, err
	}
	_, err = r.on(node).vsctl(context.Background(), "add-port", bridge, port)
	return vdn.UpReport{Device: port, MAC: link.Attrs().HardwareAddr.String(), NetNS: pod.Namespace().Path()}, err
}

// start starts the daemons of a node, which stop with its host.
func (r *rig) start(node *lab.Host) error {
	dir := r.dir(node)
	db := filepath.Join(dir, "conf.db")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("ovsdb-tool", "create", db, "/usr/share/openvswitch/vswitch.ovsschema").CombinedOutput(); err != nil {
		return fmt.Errorf("ovsdb-tool (Debian's openvswitch-switch): %w: %s", err, out)
	}
	socket := "unix:" + filepath.Join(dir, "db.sock")
	for _, argv := range [][]string{
		{"ovsdb-server", db, "--remote=p" + socket, "--unixctl=" + filepath.Join(dir, "db.ctl")},
		{"ovs-vswitchd", socket, "--unixctl=" + filepath.Join(dir, "switch.ctl")},
	} {
		cmd := exec.Command(argv[0], append(argv[1:], "-vconsole:err", "-vsyslog:off", "-vfile:off")...)
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+dir, "OVS_DBDIR="+dir, "OVS_LOGDIR="+dir)
		cmd.Stderr = r.t.Output()
		if _, err := node.Start(cmd); err != nil {
			return err
		}
		testkit.Eventually(r.t, time.Minute, func() error {
			_, err := r.on(node).vsctl(context.Background(), "--no-wait", "init")
			return err
		})
	}
	_, err := r.on(node).vsctl(context.Background(), "--timeout=60",
		"--", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev", "fail-mode=secure", "protocols=OpenFlow10,OpenFlow13",
		"--", "add-port", bridge, domain.Uplink)
	return err
}

// counted matches the parts of a dump that change.
var counted = regexp.MustCompile(`(duration|n_packets|n_bytes|idle_age|hard_age)=[^,]*, ?|^ `)

// held lists a node's flows and meters; nothing for a bridge that only forwards.
func (r *rig) held(t *testing.T, node *lab.Host, pod *domain.Pod) []string {
	t.Helper()
	s := r.on(node)
	flows, err := s.ofctl(t.Context(), "", "dump-flows", bridge)
	if err != nil {
		t.Fatal(err)
	}
	meters, err := dump(t.Context(), s, "dump-meters", metersIn)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(flows) {
		line = counted.ReplaceAllString(strings.TrimSpace(line), "")
		if strings.HasPrefix(line, "cookie") && !strings.HasSuffix(line, "table=0, priority=0 actions=NORMAL") {
			all = append(all, node.Name()+" "+line)
		}
	}
	for id, rate := range meters {
		all = append(all, fmt.Sprintf("%s meter %d %d", node.Name(), id, rate))
	}
	slices.Sort(all)
	return all
}
