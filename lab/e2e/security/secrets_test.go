package security

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/agent/sysdump"
	"github.com/fairlead/fairlead/internal/nodekey"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/pki"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// place is two hosts, lb 10.0.0.1 and router 10.0.0.254, and a pod without a device. The
// output of each process is stored in a file.
type place struct {
	t   *testing.T
	lab *lab.Lab
	dir string
	// secrets are the secret values, by name.
	secrets map[string]string
	// said are the outputs of completed commands, by their arguments.
	said map[string]string
	n    int
	// running are the processes that TestPorts inspects.
	running []*lab.Process
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newPlace(t *testing.T) *place {
	t.Helper()
	testkit.WatchSources(t)
	p := &place{t: t, dir: t.TempDir(), secrets: map[string]string{}, said: map[string]string{}}
	p.lab = labtest.Build(t, lab.Topology{
		Hosts: []lab.HostSpec{{Name: "lb"}, {Name: "router"}, {Name: "pod"}},
		Links: []lab.Link{{A: lab.At("lb", "eth0", "10.0.0.1/24").ForXDP(), B: lab.At("router", "eth0", "10.0.0.254/24").ForXDP()}},
	})
	t.Cleanup(func() { os.RemoveAll("/sys/fs/bpf/fairlead") })
	return p
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// secret generates a value, and returns a file with it in a text that has a %s.
func (p *place) secret(name, text string) (file string) {
	p.t.Helper()
	value := fmt.Sprintf("s3cr3t-%s-%d", strings.ReplaceAll(name, "/", "-"), time.Now().UnixNano()%1e9)
	p.secrets[name] = value
	file = p.path(name)
	must(p.t, os.WriteFile(file, fmt.Appendf(nil, text, value), 0o600))
	return file
}

// start runs fairlead in a host, at its highest log level.
func (p *place) start(host string, args ...string) *lab.Process {
	p.t.Helper()
	p.n++
	log, err := os.Create(p.path(fmt.Sprintf("%d-%s.log", p.n, args[0])))
	must(p.t, err)
	defer log.Close()
	cmd := exec.Command(fixture.Binary, append(args, "--log-level", "DEBUG")...)
	cmd.Stdout, cmd.Stderr = log, log
	process, err := p.lab.Host(host).Start(cmd)
	must(p.t, err)
	return process
}

// run runs a command to its end, and stores its output, whether it succeeds or not.
func (p *place) run(host string, cmd *exec.Cmd) string {
	p.t.Helper()
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	process, err := p.lab.Host(host).Start(cmd)
	must(p.t, err)
	<-process.Done()
	p.said[strings.Join(cmd.Args[1:], " ")] += said.String()
	return said.String()
}

func (p *place) fairlead(host string, args ...string) string {
	p.t.Helper()
	return p.run(host, exec.Command(fixture.Binary, args...))
}

// TestNoSecretIsLeaked configures a secret wherever one is accepted, correctly and
// incorrectly, and searches all outputs for it.
func TestNoSecretIsLeaked(t *testing.T) {
	p := newPlace(t)
	p.routing()
	p.networks()
	p.attach()
	p.refused()
	p.looks()
	p.scan()
}

const manifests = `apiVersion: v1
kind: Service
metadata: {name: web, annotations: {fairlead.io/addresses: 10.1.1.1, fairlead.io/health-check: none}}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.254]}]
---
apiVersion: fairlead.io/v1alpha1
kind: BGPPeer
metadata: {name: second}
spec: {peerAddress: 10.0.0.253, passwordSecretRef: second}
---
apiVersion: v1
kind: Secret
metadata: {name: second}
stringData: {password: %s}
`

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://10.0.0.254:6443"}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`

// routing runs an agent with all its secrets, a router that shares the agents' password,
// and a reflector that has another one.
func (p *place) routing() {
	p.t.Helper()
	must(p.t, os.Mkdir(p.path("services"), 0o755))
	p.secret("services/web.yaml", manifests)
	bgp := p.secret("bgp", "%s\n")
	p.start("router", "router", "--router-id", "10.0.0.254", "--listen-range", "10.0.0.0/24", "--password-file", bgp,
		"--socket", p.path("router.sock"), "--metrics-address", "127.0.0.1:9001")
	p.start("pod", "reflector", "--router-id", "10.0.0.253", "--client-range", "10.0.0.0/24", "--router-range", "10.0.0.254", "--listen", "127.0.0.1",
		"--password-file", p.secret("reflector", "%s\n"), "--socket", p.path("reflector.sock"), "--metrics-address", "127.0.0.1:9002")
	// Nobody listens there: there will be errors that contain the URL.
	hook := p.secret("hook", "http://user:%[1]s@10.0.0.254:8/hook/%[1]s?token=%[1]s\n")
	p.start("lb", "agent", "--manifest-dir", p.path("services"), "--interface", "eth0", "--peer", "10.0.0.254", "--password-file", bgp,
		"--l2-interfaces", "eth0", "--l2-members", "10.0.0.1,10.0.0.2", "--l2-password-file", p.secret("layer2", "%s\n"),
		"--cloud", "webhook", "--webhook-url-file", hook, "--webhook-secret-file", p.secret("signs", "%s\n"),
		"--role", "balancer,dsr", "--node-key-file", p.nodeKey(), "--require-node-key",
		"--socket", p.path("agent.sock"), "--metrics-address", "127.0.0.1:9003")
	// Nobody listens there either: the controller sends requests with a token in vain.
	p.start("lb", "controller", "--kubeconfig", p.secret("kubeconfig", kubeconfig))
	testkit.Eventually(p.t, fixture.Within, func() error {
		s, err := status.Fetch(p.t.Context(), p.path("agent.sock"))
		if err == nil && !strings.Contains(fmt.Sprint(s.Peers), "refused") {
			err = fmt.Errorf("the webhook has not failed yet: %+v", s.Peers)
		}
		if err == nil && !strings.Contains(fmt.Sprint(s.Peers), "established") {
			err = fmt.Errorf("no session yet: %+v", s.Peers)
		}
		return err
	})
}

// nodeKey generates a key for packets between nodes, and adds what is derived from it to
// the secrets.
func (p *place) nodeKey() (file string) {
	p.t.Helper()
	file = p.secret("node-key", "%s, long enough for a key of nodes\n")
	keys, err := nodekey.Read(file)
	must(p.t, err)
	for _, format := range []string{"%d", "%x", "%X"} {
		p.secrets["node key as "+format] = fmt.Sprintf(format, keys[0].K0)
	}
	return file
}

// networks runs a VDN controller with TLS and a token, and a node.
func (p *place) networks() {
	p.t.Helper()
	cert, key := p.keys("lb")
	token := p.secret("token", "%s\n")
	p.start("lb", "vdn", "controller", "--data", p.path("vdn"), "--listen", "10.0.0.1:7473", "--tls-cert", cert, "--tls-key", key, "--token-file", token, "--audit-log", "-",
		"--federation-listen", ":7474", "--federation-cert", cert, "--federation-key", key, "--federation-ca", p.path("pki/ca.crt"))
	asks := []string{"--controller", "https://10.0.0.1:7473", "--ca-file", p.path("pki/ca.crt"), "--token-file", token}
	must(p.t, os.WriteFile(p.path("networks.yaml"), []byte(`networks:
- {name: science, devices: [eth0], subnets: [{cidr: 10.9.0.0/24}], guaranteedRate: 100M}
`), 0o644))
	testkit.Eventually(p.t, fixture.Within, func() error {
		if said := p.fairlead("lb", append([]string{"vdn", "apply", "-f", p.path("networks.yaml")}, asks...)...); !strings.Contains(said, "science") {
			return fmt.Errorf("apply: %s", said)
		}
		return nil
	})
	p.start("lb", append([]string{"vdn", "agent", "--name", "lb", "--uplink", "eth0=1G", "--data", p.path("node"), "--socket", p.path("node.sock")}, asks...)...)
	testkit.Eventually(p.t, fixture.Within, func() error {
		if said := p.fairlead("lb", append([]string{"vdn", "get", "nodes"}, asks...)...); !strings.Contains(said, "eth0=1G") {
			return fmt.Errorf("nodes are %s", said)
		}
		return nil
	})
	wrong := p.secret("wrong", "%s\n")
	p.fairlead("lb", "vdn", "status", "--socket", p.path("node.sock"), "-o", "json")
	for _, look := range []string{"networks", "leases", "nodes", "peers"} {
		for _, format := range []string{"table", "json", "yaml"} {
			p.fairlead("lb", append([]string{"vdn", "get", look, "-o", format}, asks...)...)
		}
		p.fairlead("lb", append(append([]string{"vdn", "get", look}, asks...), "--token-file", wrong)...)
	}
}

// keys creates a certificate for lb, and adds its key to the secrets.
func (p *place) keys(name string) (cert, key string) {
	p.t.Helper()
	ca, err := pki.New(p.path("pki"))
	must(p.t, err)
	c, k, err := ca.Issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}})
	must(p.t, err)
	must(p.t, ca.Write(name, c, k))
	p.secrets["key"] = strings.Split(string(k), "\n")[1]
	return ca.Crt(name), ca.Key(name)
}

// attach runs the plugin with the token, and with another one.
func (p *place) attach() {
	p.t.Helper()
	program := filepath.Join(fixture.Ground, "fairlead-cni")
	must(p.t, testkit.BuildPackage(program, "github.com/fairlead/fairlead/cmd/fairlead-cni"))
	for _, token := range []string{"wrong", "token"} {
		for _, verb := range []string{"ADD", "DEL"} {
			cmd := exec.Command(program)
			cmd.Env = []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=pod", "CNI_IFNAME=net1", "CNI_PATH=" + fixture.Ground, "CNI_NETNS=" + filepath.Join(netns.Dir, "pod")}
			cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "science", "type": "fairlead-cni", "controller": "https://10.0.0.1:7473",
				"caFile": %q, "tokenFile": %q, "node": "lb", "dataDir": %q}`, p.path("pki/ca.crt"), p.path(token), p.path("cni")))
			p.run("lb", cmd)
		}
	}
}

// refused uses invalid files: errors say what is wrong, but do not show the content.
func (p *place) refused() {
	p.t.Helper()
	long := p.secret("long", "%[1]s%[1]s%[1]s%[1]s%[1]s%[1]s\n")
	two := p.secret("two", "%s and more\n")
	url := p.secret("url", "ftp://user:%s@10.0.0.254/hook\n")
	agent := []string{"agent", "--manifest-dir", p.path("services"), "--interface", "eth0", "--socket", p.path("other.sock")}
	for words, args := range map[string][]string{
		"TCP MD5 accepts at most": append(agent, "--peer", "10.0.0.254", "--password-file", long),
		"is not a URL of http":    append(agent, "--cloud", "webhook", "--webhook-url-file", url),
		"want one word":           {"vdn", "get", "networks", "--token-file", two},
		"has user information":    {"vdn", "get", "networks", "--controller", "http://user:" + p.secrets["two"] + "@10.0.0.1:7473"},
		"controller, url":         {"vdn", "get", "networks", "--controller", "http://user:" + p.secrets["two"] + "@10.0.0.1:port"},
		"a key must have at leas": append(agent, "--node-key-file", p.secret("short", "%s\n")),
		"not a URL of http or ht": append(agent, "--cloud", "webhook", "--webhook-url", "ftp://user:"+p.secrets["url"]+"@10.0.0.254/hook"),
	} {
		if said := p.fairlead("lb", args...); !strings.Contains(said, words) {
			p.t.Errorf("%s does not print %q: %s", args, words, said)
		}
		// The command line itself is the caller's responsibility, and ends with the
		// process.
		p.said[words] = p.said[strings.Join(args, " ")]
		delete(p.said, strings.Join(args, " "))
	}
	for name, text := range map[string]string{
		"list": "{password: [%s]}", "number": "{password: 1, other: [%s]}", "base64": "{password: %s", "unknown": "{password: x}\nspec: %s",
	} {
		must(p.t, os.Mkdir(p.path("services-"+name), 0o755))
		p.secret("services-"+name+"/bad.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: second}\nstringData: "+text+"\n")
		agent := p.start("pod", "agent", "--manifest-dir", p.path("services-"+name), "--role", "dsr", "--socket", p.path(name+".sock"), "--bpffs", "/sys/fs/bpf/fairlead/"+name)
		testkit.Eventually(p.t, fixture.Within, func() error {
			said := p.fairlead("pod", "status", "--socket", p.path(name+".sock"))
			if !strings.Contains(said, "bad.yaml") && !strings.Contains(said, "Secret") {
				return fmt.Errorf("the Secret is not rejected: %s", said)
			}
			return nil
		})
		must(p.t, agent.Kill())
		<-agent.Done()
	}
}

// looks runs all query commands in every format.
func (p *place) looks() {
	p.t.Helper()
	for _, format := range []string{"table", "json", "yaml"} {
		for _, role := range []string{"agent", "router", "reflector"} {
			for _, look := range [][]string{{"status"}, {"get", "routes"}, {"get", "peers"}} {
				p.fairlead("lb", append(look, "--socket", p.path(role+".sock"), "-o", format)...)
			}
		}
		for _, look := range [][]string{
			{"doctor"}, {"get", "services"}, {"get", "backends"}, {"explain", "service", "web"}, {"explain", "service"}, {"explain", "backend", "web"}, {"explain", "route", "10.1.1.1"}, {"explain", "flow", "10.0.0.254:4000", "10.1.1.1:80"}, {"drops"}, {"get", "flows"},
			{"trace", "--from", "10.0.0.254:4000", "--to", "10.1.1.1:80", "--flags", "SYN"},
		} {
			p.fairlead("lb", append(look, "--socket", p.path("agent.sock"), "-o", format)...)
		}
	}
	p.dumps()
	for host, address := range map[string]string{"router": "127.0.0.1:9001", "pod": "127.0.0.1:9002", "lb": "127.0.0.1:9003"} {
		p.said["metrics of "+host] = p.metrics(host, address)
	}
}

// dumps makes a sysdump, and reads every file in it.
func (p *place) dumps() {
	p.t.Helper()
	file := p.path("dump.tar.gz")
	said := p.fairlead("lb", "sysdump", "--socket", p.path("agent.sock"), "--socket", p.path("router.sock"), "--socket", p.path("reflector.sock"), "--observe", "300ms", "--file", file)
	archive, err := os.Open(file)
	if err != nil {
		p.t.Fatalf("%v: %s", err, said)
	}
	defer archive.Close()
	names := map[string]bool{}
	must(p.t, sysdump.Each(archive, func(name string, text []byte) error {
		names[filepath.Base(name)] = true
		p.said[name] = string(text)
		return nil
	}))
	for _, name := range []string{"summary.txt", "status.json", "log.txt", "process.txt", "web.yaml", "events.jsonl", "heap.pprof", "cpu.pprof", "pins.txt", "links.txt"} {
		if !names[name] {
			p.t.Errorf("the sysdump lacks %s: %v; %s", name, names, said)
		}
	}
}

// metrics requests the metrics like Prometheus.
func (p *place) metrics(host, address string) string {
	p.t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, to string) (net.Conn, error) {
		return p.lab.Host(host).Dial(ctx, netip.Addr{}, netip.MustParseAddrPort(to))
	}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + address + "/metrics")
	must(p.t, err)
	defer resp.Body.Close()
	var text strings.Builder
	must(p.t, resp.Write(&text))
	if !strings.Contains(text.String(), "fairlead_") {
		p.t.Errorf("metrics of %s are %s", host, text.String())
	}
	return text.String()
}

// scan searches for every secret in all of that, in the logs, and in what /proc shows of
// every process in the sandbox except this one, which is not part of the product.
func (p *place) scan() {
	p.t.Helper()
	all := p.said
	for _, pattern := range []string{p.path("*.log"), "/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
		files, err := filepath.Glob(pattern)
		must(p.t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil { // it may have exited
				all[file] = string(text)
			}
		}
	}
	if len(all) < 60 {
		p.t.Errorf("there are only %d texts to look at", len(all))
	}
	for where, text := range all {
		for name, value := range p.secrets {
			if at := strings.Index(text, value); at >= 0 {
				p.t.Errorf("%s contains secret %s: ...%s...", where, name, text[max(0, at-120):min(len(text), at+len(value)+40)])
			}
		}
	}
}
