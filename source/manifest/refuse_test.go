package manifest

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/statedir"
	"github.com/fairlead/fairlead/source"
)

// base is the content of the directory before each invalid change.
const base = `# The web service.
apiVersion: v1
kind: Service
metadata:
  name: web
  annotations:
    fairlead.io/addresses: 10.1.1.1
    fairlead.io/forwarding-mode: dsr-nat
spec:
  type: LoadBalancer
  ports:
  - name: http
    port: 80
    protocol: TCP
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels:
    kubernetes.io/service-name: web
addressType: IPv4
ports:
- name: http
  port: 8080
endpoints:
- addresses: [172.16.1.2]
  nodeName: node1
  conditions: {ready: true}
- addresses: [172.16.1.3]
`

// looker checks a directory at simulated times.
type looker struct {
	t     *testing.T
	dir   string
	d     *folder
	state *statedir.Dir
	now   time.Time
}

func newLooker(t *testing.T) *looker {
	l := &looker{t: t, dir: t.TempDir(), now: time.Now().Add(time.Hour)}
	stateDir := t.TempDir()
	l.begin(stateDir)
	t.Cleanup(func() { l.state.Close() })
	return l
}

// begin starts checking, like an agent that starts.
func (l *looker) begin(stateDir string) {
	l.state = statedir.Open(stateDir, slog.New(slog.DiscardHandler))
	l.d = newFolder(l.dir)
	l.d.saved = saved{l.dir, l.state.Files("manifests", savedVersion)}
}

// restart stops the agent and starts another.
func (l *looker) restart() {
	l.state.Close()
	l.begin(l.state.Path())
}

// write replaces a file atomically.
func (l *looker) write(name, text string) {
	l.t.Helper()
	temp := filepath.Join(l.dir, ".temp")
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(l.dir, name)); err != nil {
		l.t.Fatal(err)
	}
}

// edit writes to the existing file, as "echo >" does.
func (l *looker) edit(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// look checks once, some time after the last check.
func (l *looker) look(after time.Duration) source.Snapshot {
	l.now = l.now.Add(after)
	l.d.look(l.now)
	return l.snapshot()
}

func (l *looker) snapshot() source.Snapshot {
	s := l.d.snapshot()
	l.d.save()
	return s
}

// rest checks until there is no reason to check again.
func (l *looker) rest() source.Snapshot {
	l.t.Helper()
	for range 100 {
		_, again := l.d.look(l.now)
		if again == 0 {
			return l.snapshot()
		}
		l.now = l.now.Add(again)
		if l.d.gone != "" {
			return l.snapshot()
		}
	}
	l.t.Fatal("the folder never comes to rest")
	panic("unreachable")
}

func texts(ps []problem.Problem) string {
	var b strings.Builder
	for _, p := range ps {
		b.WriteString(p.String() + "\n")
	}
	return b.String()
}

// TestRefused: every row is an invalid change of the base, which replaces old with new. The
// previous content stays in force.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		// Strictness.
		{"protocol: TCP", "prot: TCP", `web.yaml:14: Service default/web: spec.ports[0].prot: unknown field; did you mean "protocol"?`},
		{"protocol: TCP", "xyz: TCP", `web.yaml:14: Service default/web: spec.ports[0].xyz: unknown field; there are appProtocol, name, nodePort, port, protocol, targetPort`},
		{"spec:", "speck:", `web.yaml:9: Service default/web: speck: unknown field; did you mean "spec"?`},
		{"  type: Load", "  ptype: Load", `web.yaml:10: Service default/web: spec.ptype: unknown field; did you mean "type"?`},
		{"protocol: TCP", "port: 81", `web.yaml:14: Service default/web: spec.ports[0].port: is given twice, first in line 13`},
		{"  name: web\n", "  name: web\n  name: web2\n", `web.yaml:6: Service default/web: metadata.name: is given twice, first in line 5`},
		{"fairlead.io/forwarding-mode", "fairlead.io/addresses", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/addresses]: is given twice, first in line 7`},
		{"conditions: {ready: true}", "conditions: {redy: true}", `web.yaml:29: EndpointSlice default/web-1: endpoints[0].conditions.redy: unknown field; did you mean "ready"?`},
		{"conditions: {ready: true}", "conditions: {ready: true, ready: true}", `web.yaml:29: EndpointSlice default/web-1: endpoints[0].conditions.ready: is given twice, first in line 29`},
		{"port: 80\n", "port: eighty\n", `web.yaml:13: Service default/web: spec.ports[0].port: want a whole number, got the text "eighty"`},
		{"port: 80\n", "port: \"80\"\n", `web.yaml:13: Service default/web: spec.ports[0].port: want a whole number, got the text "80"`},
		{"port: 80\n", "port: 80.5\n", `web.yaml:13: Service default/web: spec.ports[0].port: want a whole number, got the number 80.5`},
		{"port: 80\n", "port: [80]\n", `web.yaml:13: Service default/web: spec.ports[0].port: want a whole number, got a list`},
		{"port: 80\n", "port: 4294967376\n", `web.yaml:13: Service default/web: spec.ports[0].port: 4294967376 is out of range`},
		{"ready: true", "ready: maybe", `web.yaml:29: EndpointSlice default/web-1: endpoints[0].conditions.ready: want true or false, got the text "maybe"`},
		{"name: http\n    port: 80\n", "name: 7\n    port: 80\n", `web.yaml:12: Service default/web: spec.ports[0].name: want text, got the number 7; write "7" in quotes`},
		{"forwarding-mode: dsr-nat", "forwarding-mode: on", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/forwarding-mode]: is a boolean to Kubernetes; write "on" in quotes`},
		{"forwarding-mode: dsr-nat", "forwarding-mode: true", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/forwarding-mode]: want text, got the boolean true; write "true" in quotes`},
		{"  name: web\n", "  name: web\n  creationTimestamp: yesterday\n", `web.yaml:6: Service default/web: metadata.creationTimestamp: want a time like "2026-01-02T15:04:05Z", got the text "yesterday"`},
		{"spec:\n", "spec:\n  sessionAffinity: {}\n", `web.yaml:10: Service default/web: spec.sessionAffinity: want text, got fields`},
		{"endpoints:\n", "endpoints: web\nx:\n", "web.yaml:26: EndpointSlice default/web-1: endpoints: want a list, got the text \"web\"\nweb.yaml:27: EndpointSlice default/web-1: x: unknown field; there are addressType, apiVersion, endpoints, kind, metadata, ports"},

		// Ports and protocols.
		{"port: 80\n", "port: 0\n", `web.yaml:13: Service default/web: spec.ports[0].port: 0 is out of range; want 1 to 65535`},
		{"port: 80\n", "port: 70000\n", `web.yaml:13: Service default/web: spec.ports[0].port: 70000 is out of range; want 1 to 65535`},
		{"port: 80\n", "nodePort: 80\n", `web.yaml:12: Service default/web: spec.ports[0].port: 0 is out of range; want 1 to 65535`},
		{"TCP", "ICMP", `web.yaml:14: Service default/web: spec.ports[0].protocol: unknown protocol "ICMP"; want TCP, UDP or SCTP`},
		{"    protocol: TCP\n", "  - port: 81\n", `web.yaml:14: Service default/web: spec.ports[1].name: is missing; a Service with several ports names each`},
		{"    protocol: TCP\n", "  - {port: 81, name: http}\n", `web.yaml:14: Service default/web: spec.ports[1].name: "http" is the name of two ports`},
		{"    protocol: TCP\n", "  - {port: 80, name: https}\n", `web.yaml:14: Service default/web: spec.ports[1].port: TCP 80 is given twice`},
		{"  ports:\n  - name: http\n    port: 80\n    protocol: TCP\n", "", `web.yaml:9: Service default/web: spec.ports: is empty; want at least one port`},
		{"port: 8080", "port: 0", `web.yaml:25: EndpointSlice default/web-1: ports[0].port: 0 is out of range; want 1 to 65535`},
		{"port: 8080", "protocol: TCP", `web.yaml:24: EndpointSlice default/web-1: ports[0].port: is missing; want 1 to 65535`},
		{"  port: 8080\n", "  port: 8080\n- {name: http, port: 1}\n", `web.yaml:26: EndpointSlice default/web-1: ports[1].name: "http" is the name of two ports`},

		// Unsupported features.
		{"spec:\n", "spec:\n  sessionAffinity: Cookie\n", `web.yaml:10: Service default/web: spec.sessionAffinity: unknown session affinity "Cookie"; want None or ClientIP`},
		{"spec:\n", "spec:\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 3}}\n", `web.yaml:10: Service default/web: spec.sessionAffinityConfig: has no meaning without sessionAffinity ClientIP; leave it out`},
		{"spec:\n", "spec:\n  externalTrafficPolicy: local\n", `web.yaml:10: Service default/web: spec.externalTrafficPolicy: unknown policy "local"; want Cluster or Local`},
		{"forwarding-mode: dsr-nat\nspec:\n", "forwarding-mode: fullnat\nspec:\n  externalTrafficPolicy: Local\n", `web.yaml:10: Service default/web: spec.externalTrafficPolicy: Local asks to keep the client's address, which forwarding mode fullnat rewrites; want Cluster, or another forwarding mode`},
		{"LoadBalancer", "Loadbalancer", `web.yaml:10: Service default/web: spec.type: unknown type "Loadbalancer"; did you mean "LoadBalancer"?`},
		{"LoadBalancer", "x", `web.yaml:10: Service default/web: spec.type: unknown type "x"; want LoadBalancer, ClusterIP, NodePort or ExternalName`},

		// Addresses.
		{"    fairlead.io/addresses: 10.1.1.1\n", "", `web.yaml:2: Service default/web: status.loadBalancer.ingress: the Service has no address; give it one by annotation fairlead.io/addresses (or by status.loadBalancer.ingress[].ip, spec.loadBalancerIP or spec.externalIPs)`},
		{"addresses: 10.1.1.1", "addresses: 10.1.1.1, 10.1.1", `web.yaml:7: Service default/web: metadata.annotations[fairlead.io/addresses]: "10.1.1" is not an IP address`},
		{"addresses: 10.1.1.1", "addresses: ''", `web.yaml:7: Service default/web: metadata.annotations[fairlead.io/addresses]: is empty; want one value, or several separated by commas`},
		{"addresses: 10.1.1.1", "addresses: 127.0.0.1", `web.yaml:7: Service default/web: metadata.annotations[fairlead.io/addresses]: 127.0.0.1 is not a unicast address that can be routed to`},
		{"spec:\n", "spec:\n  externalIPs: [10.1.1.1, nowhere]\n", `web.yaml:10: Service default/web: spec.externalIPs[1]: "nowhere" is not an IP address; names are not looked up`},
		{"spec:\n", "status:\n  loadBalancer:\n    ingress:\n    - hostname: a\n    - ip: 1.2.3\nspec:\n", `web.yaml:13: Service default/web: status.loadBalancer.ingress[1].ip: "1.2.3" is not an IP address`},
		{"172.16.1.3", "172.16.1.300", `web.yaml:30: EndpointSlice default/web-1: endpoints[1].addresses[0]: "172.16.1.300" is not an IP address`},
		{"172.16.1.3", "'2001:db8::3'", `web.yaml:30: EndpointSlice default/web-1: endpoints[1].addresses[0]: 2001:db8::3 is not of addressType IPv4`},
		{"[172.16.1.3]", "[]", `web.yaml:30: EndpointSlice default/web-1: endpoints[1].addresses: is empty; want one address`},
		{"addressType: IPv4", "addressType: FQDN", `web.yaml:22: EndpointSlice default/web-1: addressType: FQDN is not served; want IPv4 or IPv6`},
		{"addressType: IPv4", "addressType: ipv4", `web.yaml:22: EndpointSlice default/web-1: addressType: unknown address type "ipv4"; want IPv4 or IPv6`},
		{"addressType: IPv4\n", "", `web.yaml:16: EndpointSlice default/web-1: addressType: is missing; want IPv4 or IPv6`},
		{"kubernetes.io/service-name: web", "app: web", `web.yaml:20: EndpointSlice default/web-1: metadata.labels[kubernetes.io/service-name]: is missing; it names the Service that the endpoints belong to`},

		// Schedulers, connection consistency, limits and ranges.
		{"forwarding-mode: dsr-nat", "scheduler: wlcc", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/scheduler]: unknown scheduler "wlcc"; want maglev, rr, wrr, lc, wlc, sh, dh or p2c`},
		{"forwarding-mode: dsr-nat", "encapsulation: vxlan", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/encapsulation]: unknown encapsulation "vxlan"; want ipip or gue`},
		{"forwarding-mode: dsr-nat", "forwarding-mode: nat\n    fairlead.io/encapsulation: gue", `web.yaml:9: Service default/web: metadata.annotations[fairlead.io/encapsulation]: does not apply to forwarding mode nat; omit it, or use tunnel`},
		{"forwarding-mode: dsr-nat", "connection-consistency: luck", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/connection-consistency]: unknown connection consistency "luck"; want second-chance, flow-table or hash-only`},
		{"forwarding-mode: dsr-nat", "forwarding-mode: fullnat\n    fairlead.io/connection-consistency: hash-only", `web.yaml:9: Service default/web: metadata.annotations[fairlead.io/connection-consistency]: hash-only is not possible with forwarding mode fullnat, for which flows must be remembered; want flow-table`},
		{"forwarding-mode: dsr-nat", "max-connections: \"5\"\n    fairlead.io/connection-consistency: second-chance", `web.yaml:9: Service default/web: metadata.annotations[fairlead.io/connection-consistency]: second-chance is not possible with fairlead.io/max-connections, for which flows must be remembered; want flow-table`},
		{"forwarding-mode: dsr-nat", "max-connections: \"0\"", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/max-connections]: "0" is not a number of connections; want 1 or more, or leave it out for no limit`},
		{"forwarding-mode: dsr-nat", "max-connections: 172.16.1.2=many", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/max-connections]: "many" is not a number of connections for 172.16.1.2; want 1 or more, or leave it out for no limit`},
		{"forwarding-mode: dsr-nat", "max-connections: 172.16.1.2=5,7", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/max-connections]: "7" is not a number; want address=number, such as "172.16.1.2=500"`},
		{"forwarding-mode: dsr-nat", "rate-limits: cps=5, client-pp=3", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/rate-limits]: unknown limit "client-pp"; did you mean "client-pps"?`},
		{"forwarding-mode: dsr-nat", "rate-limits: syn=3", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/rate-limits]: unknown limit "syn"; want client-pps, client-cps, pps or cps`},
		{"forwarding-mode: dsr-nat", "rate-limits: \"100\"", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/rate-limits]: "100" is not a limit; want limit=number, such as "client-cps=50"`},
		{"forwarding-mode: dsr-nat", "rate-limits: cps=5,cps=6", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/rate-limits]: cps is given twice`},
		{"forwarding-mode: dsr-nat", "rate-limits: cps=0", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/rate-limits]: "0" is not a number of cps a second; want 1 or more, or leave it out for no limit`},
		{"forwarding-mode: dsr-nat", "port-ranges: http=80", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/port-ranges]: "80" is not a range of ports; want one like "rtp=10000-19999", or "all"`},
		{"forwarding-mode: dsr-nat", "port-ranges: http=80-70000", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/port-ranges]: "70000" is not a port; want 1 to 65535`},
		{"forwarding-mode: dsr-nat", "port-ranges: http=90-80", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/port-ranges]: "90-80" is not a range of ports; want the lower port first`},
		{"forwarding-mode: dsr-nat", "port-ranges: http=81-90", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/port-ranges]: the range begins at 81, but the port "http" is 80; want the same number`},
		{"forwarding-mode: dsr-nat", "port-ranges: web=80-90", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/port-ranges]: the Service has no port named "web"`},
		{"forwarding-mode: dsr-nat", "port-ranges: http=80-90, http=80-91", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/port-ranges]: port "http" is given twice`},
		{"forwarding-mode: dsr-nat", "deny-source-ranges: 10.0.0.1/8", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/deny-source-ranges]: 10.0.0.1/8 has bits beyond its length; did you mean 10.0.0.0/8?`},
		{"forwarding-mode: dsr-nat", "deny-source-ranges: 10.0.0.1", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/deny-source-ranges]: "10.0.0.1" is not a prefix: the length is missing; use 10.0.0.1/32 for the single address`},
		{"forwarding-mode: dsr-nat", "backend-timestamps: 172.16.1.2=2026-01-02T15:04:05Z", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/backend-timestamps]: unknown annotation of a Service; it belongs on its EndpointSlices`},
		{"  name: web-1\n", "  name: web-1\n  annotations: {fairlead.io/backend-timestamps: 172.16.1.2=2026-01-02T15:04:05Z/today}\n", `web.yaml:20: EndpointSlice default/web-1: metadata.annotations[fairlead.io/backend-timestamps]: "today" is not a time for 172.16.1.2; want one like "2026-01-02T15:04:05Z"`},
		{"  name: web-1\n", "  name: web-1\n  annotations: {fairlead.io/backend-timestamps: 172.16.1.2=2026-01-02T15:04:05Z/2026-01-02T15:04:05Z}\n", `web.yaml:20: EndpointSlice default/web-1: metadata.annotations[fairlead.io/backend-timestamps]: 172.16.1.2 drains since 2026-01-02T15:04:05Z, which is not after 2026-01-02T15:04:05Z, when it began`},
		{"  name: web-1\n", "  name: web-1\n  annotations: {fairlead.io/backend-timestamps: 172.16.1.2=yesterday}\n", `web.yaml:20: EndpointSlice default/web-1: metadata.annotations[fairlead.io/backend-timestamps]: "yesterday" is not a time for 172.16.1.2; want one like "2026-01-02T15:04:05Z"`},
		{"  name: web-1\n", "  name: web-1\n  annotations: {fairlead.io/backend-timestamps: 172.16.1.9=2026-01-02T15:04:05Z}\n", `web.yaml:20: EndpointSlice default/web-1: metadata.annotations[fairlead.io/backend-timestamps]: 172.16.1.9 is none of its endpoints; that time does nothing`},
		{"  name: web-1\n", "  name: web-1\n  annotations: {fairlead.io/connection-consistency: hash-only}\n", `web.yaml:20: EndpointSlice default/web-1: metadata.annotations[fairlead.io/connection-consistency]: unknown annotation of an EndpointSlice; it belongs on the Service`},
		{"spec:\n", "spec:\n  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}\n", `web.yaml:11: Service default/web: spec.sessionAffinityConfig.clientIP.timeoutSeconds: 0 is out of range; want 1 to 86400`},
		{"spec:\n", "    fairlead.io/scheduler: dh\nspec:\n  sessionAffinity: ClientIP\n", `web.yaml:11: Service default/web: spec.sessionAffinity: has no meaning with scheduler dh, which sends all clients of a VIP to one server`},
		{"spec:\n", "spec:\n  loadBalancerSourceRanges: [10.0.0.0/8, ten]\n", `web.yaml:10: Service default/web: spec.loadBalancerSourceRanges[1]: "ten" is not a prefix; want one like "10.1.1.0/24"`},
		{"spec:\n", "spec:\n  loadBalancerSourceRanges: [\"::/0\"]\n", "web.yaml:10: Service default/web: spec.loadBalancerSourceRanges: ::/0 is of another family than every VIP and so no client's\n" +
			`web.yaml:10: Service default/web: spec.loadBalancerSourceRanges: has no prefix of the VIP 10.1.1.1's family, so that it would serve nobody; add one, or 0.0.0.0/0 for everybody`},

		// Annotations.
		{"forwarding-mode: dsr-nat", "forwarding-mode: tunel", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/forwarding-mode]: unknown forwarding mode "tunel"; want nat, fullnat, dsr-nat, dr or tunnel`},
		{"forwarding-mode: dsr-nat", "forwarding-mod: tunnel", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/forwarding-mod]: unknown annotation; did you mean "fairlead.io/forwarding-mode"?`},
		{"forwarding-mode: dsr-nat", "maglev-table-size: '16380'", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/maglev-table-size]: 16380 is not a prime; the nearest are 16369 and 16381`},
		{"forwarding-mode: dsr-nat", "maglev-table-size: '200000'", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/maglev-table-size]: 200000 is out of range; want a prime from 251 to 131071, such as 16381`},
		{"forwarding-mode: dsr-nat", "maglev-table-size: many", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/maglev-table-size]: "many" is not a whole number`},
		{"forwarding-mode: dsr-nat", "panic-mode: 'no'", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/panic-mode]: unknown value "no"; want enabled or disabled`},
		{"forwarding-mode: dsr-nat", "health-check: ping", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/health-check]: unknown health check "ping"; want tcp, http or none`},
		{"forwarding-mode: dsr-nat", "health-check-path: /ok", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/health-check-path]: has no meaning for a tcp check; set fairlead.io/health-check to http`},
		{"forwarding-mode: dsr-nat", "health-check: http\n    fairlead.io/health-check-path: ok", `web.yaml:9: Service default/web: metadata.annotations[fairlead.io/health-check-path]: "ok" is not a path; want one like "/healthz"`},
		{"forwarding-mode: dsr-nat", "health-check-port: '0'", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/health-check-port]: "0" is not a port; want 1 to 65535`},
		{"forwarding-mode: dsr-nat", "health-check-interval: '5'", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/health-check-interval]: "5" is not a duration; want one like "500ms" or "2s"`},
		{"forwarding-mode: dsr-nat", "health-check-interval: 1ms", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/health-check-interval]: 1ms is out of range; want 10ms to 1h0m0s`},
		{"forwarding-mode: dsr-nat", "health-check-timeout: 2s", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/health-check-timeout]: 2s is longer than the interval of 1s, so that probes would overtake one another`},
		{"forwarding-mode: dsr-nat", "health-check-healthy-threshold: '0'", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/health-check-healthy-threshold]: 0 is out of range; want 1 to 1000`},
		{"forwarding-mode: dsr-nat", "health-check-unhealthy-threshold: x", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/health-check-unhealthy-threshold]: "x" is not a whole number`},
		{"forwarding-mode: dsr-nat", "advertise-prefixes: 10.1.1.1/24", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/advertise-prefixes]: 10.1.1.1/24 has bits beyond its length; did you mean 10.1.1.0/24?`},
		{"forwarding-mode: dsr-nat", "advertise-prefixes: 10.1.2.0/24", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/advertise-prefixes]: 10.1.2.0/24 contains no VIP of this Service`},
		{"forwarding-mode: dsr-nat", "advertise-prefixes: 10.1.1.0", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/advertise-prefixes]: "10.1.1.0" is not a prefix: the length is missing; use 10.1.1.0/32 for the single address`},
		{"forwarding-mode: dsr-nat", "weights: 172.16.1.2", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/weights]: "172.16.1.2" is not a weight; want address=weight, such as "172.16.1.2=3"`},
		{"forwarding-mode: dsr-nat", "weights: 172.16.1.2=-1", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/weights]: "-1" is not a weight for 172.16.1.2; want 0 to 65535`},
		{"forwarding-mode: dsr-nat", "weights: '172.16.1.2=1,172.16.1.2=2'", `web.yaml:8: Service default/web: metadata.annotations[fairlead.io/weights]: 172.16.1.2 is given twice`},
		{"  labels:\n", "  annotations: {fairlead.io/weights: 172.16.1.2=70000}\n  labels:\n", `web.yaml:20: EndpointSlice default/web-1: metadata.annotations[fairlead.io/weights]: "70000" is not a weight for 172.16.1.2; want 0 to 65535`},
		{"  labels:\n", "  annotations: {fairlead.io/forwarding-mode: tunnel}\n  labels:\n", `web.yaml:20: EndpointSlice default/web-1: metadata.annotations[fairlead.io/forwarding-mode]: unknown annotation of an EndpointSlice; it belongs on the Service`},
		{"  labels:\n", "  annotations: {fairlead.io/wieghts: 172.16.1.2=7}\n  labels:\n", `web.yaml:20: EndpointSlice default/web-1: metadata.annotations[fairlead.io/wieghts]: unknown annotation; did you mean "fairlead.io/weights"?`},

		// Unexpected objects.
		{"kind: Service\n", "kind: Servcie\n", `web.yaml:3: Servcie default/web: kind: kind Servcie is not read here; did you mean "Service"?`},
		{"kind: Service\n", "", `web.yaml:2: default/web: kind: is missing; want Service, EndpointSlice, Pod, BGPPeer, Advertisement, AddressPool, Quarantine, Secret, List`},
		{"apiVersion: v1\n", "apiVersion: v2\n", `web.yaml:2: Service default/web: apiVersion: Service is read as "v1", got "v2"`},
		{"discovery.k8s.io/v1\n", "discovery.k8s.io/v1beta1\n", `web.yaml:16: EndpointSlice default/web-1: apiVersion: EndpointSlice is read as "discovery.k8s.io/v1", got "discovery.k8s.io/v1beta1"`},
		{"  name: web\n", "", `web.yaml:4: Service: metadata.name: is missing; every object has a name`},
		{"  name: web\n", "  name: web\n  namespace: a.b\n", "web.yaml:6: Service a.b/web: metadata.namespace: \"a.b\" is not a valid namespace: must not contain dots"},
		{"# The web service.\n", "- just\n- a list\n---\n", "web.yaml:1: want an object with apiVersion and kind, got a list; write several objects as documents of their own, or as the items of a List"},
		{"addressType: IPv4\nports:\n- name: http\n  port: 8080\nendpoints:\n- addresses: [172.16.1.2]\n  nodeName: node1\n  conditions: {ready: true}\n- addresses: [172.16.1.3]\n",
			"addressType: IPv6\nports:\n- name: http\n  port: 8080\nendpoints:\n- addresses: ['2001:db8::2']\n",
			`web.yaml:22: EndpointSlice default/web-1: addressType: cannot change from IPv4 to IPv6, as in Kubernetes; give the new EndpointSlice another name`},

		// Invalid YAML.
		{"  ports:\n", "  ports: [\n", "web.yaml:12: not valid YAML: did not find expected node content"},
		{"    port: 80\n", "   port: 80\n", "web.yaml:13: not valid YAML: did not find expected key"},
		{"    port: 80\n", "\tport: 80\n", "web.yaml:13: not valid YAML: found a tab character that violates indentation"},
		{"    port: 80\n", "    port: *eighty\n", "web.yaml:13: not valid YAML: unknown anchor 'eighty' referenced"},
		{"name: http\n", "name: \"http\n", "web.yaml:12: not valid YAML: found unexpected document indicator"},
		{"name: web-1\n", "name: \"web-1\n", "web.yaml:19: not valid YAML: found unexpected end of stream (half-written?)"},
		{"type: LoadBalancer\n", "type: Load: Balancer\n", "web.yaml:10: not valid YAML: mapping values are not allowed in this context"},
		{"conditions: {ready: true}", "conditions: {ready: true", "web.yaml:30: not valid YAML: did not find expected ',' or '}'"},
		{"# The web service.\n", "a: {\n", "web.yaml:3: not valid YAML: did not find expected ',' or '}'"},
	} {
		t.Run(c.want, func(t *testing.T) {
			l := newLooker(t)
			l.write("web.yaml", base)
			before := l.rest()
			if len(before.Problems) > 0 || len(before.Services) != 1 || len(before.Services[0].Frontends[0].Backends) != 2 {
				t.Fatalf("the base is not as it should be: %+v", before)
			}
			bad := strings.Replace(base, c.old, c.new, 1)
			if bad == base {
				t.Fatalf("%q is not in the base", c.old)
			}
			l.write("web.yaml", bad)
			after := l.rest()
			if got := strings.TrimSuffix(texts(after.Problems), "\n"); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
			checkSame(t, before.Services, after.Services)
			l.write("web.yaml", base)
			if fixed := l.rest(); len(fixed.Problems) > 0 {
				t.Errorf("the fixed file still has problems: %s", texts(fixed.Problems))
			}
		})
	}
}

// checkSame checks that the Services are unchanged.
func checkSame(t *testing.T, before, after []*service.Service) {
	t.Helper()
	if len(before) != len(after) {
		t.Fatalf("there were %d Services, now there are %d", len(before), len(after))
	}
	for i, b := range before {
		a := *after[i]
		a.Origin = b.Origin // its line may have changed
		if !equalServices(&a, b) {
			t.Errorf("%s changed from\n%+v to\n%+v", b.ID, b, after[i])
		}
	}
}
