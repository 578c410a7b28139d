package privileges

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/testkit"
)

// cluster runs a control plane on the host router.
func (p *place) cluster() *kube.Cluster {
	p.t.Helper()
	return kube.Start(p.t, kube.Options{Host: p.lab.Host("router").Namespace(), Address: netip.MustParseAddr("10.0.0.254")})
}

// controller checks that a Service gets its address, which a load balancer serves.
func controller(p *place, caps privilege.Set) error {
	c := p.cluster()
	for _, pattern := range []string{"manifests/namespace.yaml", "crds/*.yaml"} {
		files, err := filepath.Glob("../../../deploy/" + pattern)
		must(p.t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(p.t, err)
			must(p.t, c.Apply(p.t.Context(), string(text)))
		}
	}
	must(p.t, c.Apply(p.t.Context(), `
apiVersion: fairlead.io/v1alpha1
kind: AddressPool
metadata: {name: web}
spec: {addresses: [10.1.1.1/32]}
---
apiVersion: v1
kind: Service
metadata: {name: web, annotations: {fairlead.io/forwarding-mode: fullnat, fairlead.io/health-check: none}}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.21], conditions: {ready: true}}]
`))
	p.agent("lb", privilege.All, "--kubernetes", "--kubeconfig", c.Kubeconfig)
	k := p.start("router", caps, "controller", "--kubeconfig", c.Kubeconfig)
	return k.until(func() error { return p.answered(vip) })
}

const clusterService = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.80, ports: [{name: http, port: 80}, {name: echo, port: 53, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 80}, {name: echo, port: 53, protocol: UDP}]
endpoints: [{addresses: [%s], conditions: {ready: true}}]
`

// serviceProxy checks that a Service answers on the node, and that a socket in another
// namespace is closed when its endpoint is gone.
func serviceProxy(p *place, caps privilege.Set) error {
	c := p.cluster()
	must(p.t, c.Apply(p.t.Context(), fmt.Sprintf(clusterService, "10.0.0.21")+`
---
apiVersion: v1
kind: Node
metadata: {name: lb}
`))
	cgroup := testkit.EnterCgroup(p.t) // this process's sockets are the clients
	lb := p.agent("lb", caps, "--kubernetes", "--kubeconfig", c.Kubeconfig, "--role", "proxy", "--cgroup", cgroup, "--health-address", "")
	defer func() { // otherwise the cgroup could not be removed
		must(p.t, lb.Kill())
		<-lb.Done()
	}()
	err := lb.until(func() error {
		conn, err := p.lab.Host("lb").Dial(p.t.Context(), netip.Addr{}, netip.MustParseAddrPort("10.96.0.80:80"))
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		return err
	}
	return p.endsSocket(lb, func() { must(p.t, c.Apply(p.t.Context(), fmt.Sprintf(clusterService, "10.0.0.22"))) })
}

// endsSocket removes the endpoint of a UDP socket in another namespace.
func (p *place) endsSocket(lb *process, lose func()) error {
	var socket net.Conn
	must(p.t, p.lab.Host("web").Do(func() (err error) {
		socket, err = net.Dial("udp", "10.96.0.80:53")
		return err
	}))
	defer socket.Close()
	lose()
	return lb.until(func() error {
		if _, err := socket.Write([]byte("?")); !errors.Is(err, unix.ECONNABORTED) && !errors.Is(err, unix.EDESTADDRREQ) {
			return fmt.Errorf("the socket is still there: %v", err)
		}
		return nil
	})
}
