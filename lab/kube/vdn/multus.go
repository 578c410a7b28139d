package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/lab/kube/nodes"
)

// attachmentKind is the definition of Multus' custom resource, as far as it is used here.
const attachmentKind = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {plural: network-attachment-definitions, singular: network-attachment-definition, kind: NetworkAttachmentDefinition}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties: {spec: {type: object, properties: {config: {type: string}}}}
`

// definition is the attachment definition of a network, for all nodes: it names none.
const definition = `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: %[1]s}
spec:
  config: |
    {"cniVersion": "1.1.0", "name": %[1]q, "type": "fairlead-cni", "controller": "https://%[2]s:7473", "tokenFile": %[3]q, "caFile": %[4]q,
     "defaultRoute": false, "capabilities": {"ips": true, "mac": true}}
`

// observers are pods with a secondary network, one on each node. They are replaced all at
// the same time, because each node has one NIC for them.
const observers = `apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 2
  strategy: {type: Recreate}
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s}
      annotations: {k8s.v1.cni.cncf.io/networks: %[1]s}
    spec:
      runtimeClassName: multus
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, matchLabelKeys: [pod-template-hash], labelSelector: {matchLabels: {app: %[1]s}}}
      containers: [{name: web, image: %[2]s, args: [netexec, --http-port=8080], readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2, timeoutSeconds: 5}}]
`

// director is a pod that requests its addresses and the name of its interface.
const director = `apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: multus}
handler: multus
---
apiVersion: v1
kind: Pod
metadata:
  name: director
  annotations:
    k8s.v1.cni.cncf.io/networks: |
      [{"name": "telescope", "interface": "sky0", "ips": ["172.31.2.177", "fd31:2::177"], "mac": "02:00:00:00:01:77"}]
spec:
  runtimeClassName: multus
  terminationGracePeriodSeconds: 1
  containers: [{name: web, image: %s, args: [netexec, --http-port=8080]}]
`

// secondary are the networks that pods have through Multus, and the names of their
// Deployments.
var secondary = []string{"telescope", "antenna"}

// overNetwork is a Service whose backends are reached on one of those networks.
const overNetwork = `apiVersion: v1
kind: Service
metadata: {name: %[1]s, annotations: {fairlead.io/network: default/%[2]s%[3]s}}
spec:
  type: LoadBalancer
  selector: {app: %[2]s}
  ports: [{port: 80, targetPort: 8080}]
`

// services use both networks. The load balancer is the gateway of both, which nat
// requires.
var services = []struct{ name, network, method, vip string }{
	{"sky", "telescope", "", "10.1.1.3"}, {"sky-nat", "telescope", "nat", "10.1.1.4"},
	{"ground", "antenna", "", "10.1.1.5"}, {"ground-nat", "antenna", "nat", "10.1.1.6"},
	{"sky-tunnel", "telescope", "tunnel", "10.1.1.7"}, {"ground-direct", "antenna", "dsr-nat", "10.1.1.8"},
}

// multusNetwork makes Multus the network of pods, with the cluster's default network as
// the first one. It is referenced by its folder, because with a file name Multus forgets
// half of it before it deletes.
const multusNetwork = `{
  "cniVersion": "1.0.0", "name": "multus",
  "plugins": [{"type": "multus", "clusterNetwork": "{{.Dir}}/cni", "kubeconfig": "{{.Kubeconfig}}", "capabilities": {"portMappings": true}}]
}`

// observe runs pods on several networks with Multus.
func (w *world) observe(ctx context.Context) error {
	image, err := w.Agnhost()
	if err != nil {
		return err
	}
	authority, _ := w.Authority()
	all := []string{attachmentKind}
	for _, name := range secondary {
		all = append(all, fmt.Sprintf(definition, name, vdnAddr, w.file("token"), authority))
	}
	all = append(all, fmt.Sprintf(director, image))
	for _, name := range secondary {
		all = append(all, fmt.Sprintf(observers, name, image))
	}
	for _, text := range all {
		if err := w.Apply(ctx, text); err != nil {
			return err
		}
	}
	for _, name := range secondary {
		if err := w.ready(ctx, name); err != nil {
			return err
		}
	}
	if _, err := w.Kubectl(ctx, "wait", "pod/director", "--for=condition=Ready", "--timeout=2m"); err != nil {
		return err
	}
	if err := w.observed(ctx); err != nil {
		return err
	}
	said, err := w.Kubectl(ctx, "exec", "director", "--", "cat", "/sys/class/net/sky0/address")
	if err == nil && strings.TrimSpace(said) != "02:00:00:00:01:77" {
		err = fmt.Errorf("sky0 has %q", said)
	}
	if err := errors.Join(err, w.leaseAt("default/director telescope sky0 172.31.2.177 fd31:2::177")); err != nil {
		return err
	}
	w.Say("Multus has given pods a macvlan device or a NIC next to the cluster network, and one pod the addresses that it requested")
	return nil
}

// attachedAs is the description of a pod's interface by Multus' annotation, or by a
// lease.
func attachedAs(owner, network, iface string, addrs []string) string {
	slices.SortFunc(addrs, func(a, b string) int { return netip.MustParseAddr(a).Compare(netip.MustParseAddr(b)) })
	return fmt.Sprintf("%s %s %s %s", owner, network, iface, strings.Join(addrs, " "))
}

// leasesAs returns the descriptions of all leases created through Multus.
func (w *world) leasesAs() (all []string, err error) {
	leases, err := w.attachments()
	for _, a := range leases {
		if !slices.Contains(secondary, a.Network) {
			continue
		}
		var addrs []string
		for _, p := range a.Addresses {
			addrs = append(addrs, p.Addr().String())
		}
		all = append(all, attachedAs(a.Owner, a.Network, a.Interface, addrs))
	}
	slices.Sort(all)
	return all, err
}

// leaseAt returns an error if there is no such lease.
func (w *world) leaseAt(want string) error {
	all, err := w.leasesAs()
	if err == nil && !slices.Contains(all, want) {
		err = fmt.Errorf("leases %q, want %q among them", all, want)
	}
	return err
}

// observed waits until Multus' annotations match the controller's leases: two observers
// on each network, and the director.
func (w *world) observed(ctx context.Context) error {
	return w.await(ctx, "the networks' status", func() error {
		said, err := w.Kubectl(ctx, "get", "pods", "--output", "json")
		if err != nil {
			return err
		}
		var pods struct {
			Items []struct {
				Metadata struct {
					Name        string
					Annotations map[string]string
				}
			}
		}
		if err := json.Unmarshal([]byte(said), &pods); err != nil {
			return err
		}
		var reported []string
		for _, p := range pods.Items {
			var status []struct {
				Name, Interface string
				IPs             []string
			}
			text, ok := p.Metadata.Annotations["k8s.v1.cni.cncf.io/network-status"]
			if !ok {
				continue // a RuntimeClass without Multus
			}
			if err := json.Unmarshal([]byte(text), &status); err != nil {
				return err
			}
			for _, s := range status {
				if network, ok := strings.CutPrefix(s.Name, "default/"); ok {
					reported = append(reported, attachedAs("default/"+p.Metadata.Name, network, s.Interface, s.IPs))
				}
			}
		}
		slices.Sort(reported)
		leased, err := w.leasesAs()
		if err == nil && (!slices.Equal(reported, leased) || len(reported) != 5) {
			err = fmt.Errorf("pods report %q, the controller has leased %q", reported, leased)
		}
		return err
	})
}

// serveObservers sends requests to the Services on those networks, in each supported
// forwarding mode; unsupported ones must be rejected with a reason.
func (w *world) serveObservers(ctx context.Context) error {
	for _, s := range services {
		method := ""
		if s.method != "" {
			method = ", fairlead.io/forwarding-mode: " + s.method
		}
		if err := w.Apply(ctx, fmt.Sprintf(overNetwork, s.name, s.network, method)); err != nil {
			return err
		}
		if err := w.give(ctx, s.name, s.vip); err != nil {
			return err
		}
		if s.method == "tunnel" || s.method == "dsr-nat" {
			if err := w.refused(ctx, fmt.Sprintf("%s needs the DSR agent at the backends' devices, which on network %q", s.method, "default/"+s.network)); err != nil {
				return err
			}
			w.Say("%s is rejected with its name on network %s", s.method, s.network)
			continue
		}
		if err := w.allAnswer(ctx, 2, s.vip, func() (string, error) { return w.get(ctx, s.vip) }); err != nil {
			return err
		}
		from, err := nodes.Get(ctx, w.Host("client"), "http://"+s.vip+":80/clientip", "", nil)
		if nat := strings.HasPrefix(from, clientAddr+":"); err == nil && nat != (s.method == "nat") {
			err = fmt.Errorf("a pod of Service %s (%s) saw the client as %s", s.name, s.method, from)
		}
		if err != nil {
			return err
		}
		w.Say("both pods answer for Service %s on network %s; they see the client as %s", s.name, s.network, from)
	}
	return nil
}

// refused waits until the load balancer reports why it does not serve a Service.
func (w *world) refused(ctx context.Context, why string) error {
	return w.await(ctx, "the balancer refuses it", func() error {
		said, err := exec.CommandContext(ctx, w.program(), "status", "--socket", w.file("lb.sock"), "-o", "json").CombinedOutput()
		var status struct{ Problems []struct{ Message string } }
		if err == nil {
			err = json.Unmarshal(said, &status)
		}
		for _, p := range status.Problems {
			if strings.Contains(p.Message, why) {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("no problem contains %q:\n%s", why, said))
	})
}

// disturb kills a pod's sandbox on each network, and then replaces all pods.
func (w *world) disturb(ctx context.Context) error {
	for _, name := range secondary {
		if err := w.recreate(ctx, name); err != nil {
			return err
		}
	}
	if err := w.observed(ctx); err != nil {
		return err
	}
	for _, name := range secondary {
		if _, err := w.Kubectl(ctx, "rollout", "restart", "deployment/"+name); err != nil {
			return err
		}
		if err := w.ready(ctx, name); err != nil {
			return err
		}
	}
	if err := w.observed(ctx); err != nil {
		return err
	}
	w.Say("recreated pods have their Multus networks again, and no extra leases")
	for _, s := range []int{0, 2} {
		if err := w.allAnswer(ctx, 2, services[s].vip, func() (string, error) { return w.get(ctx, services[s].vip) }); err != nil {
			return err
		}
	}
	return nil
}

// observeNoMore deletes Multus' pods, and checks that all their leases are released.
func (w *world) observeNoMore(ctx context.Context) error {
	for _, s := range services {
		if _, err := w.Kubectl(ctx, "delete", "service", s.name); err != nil {
			return err
		}
	}
	if _, err := w.Kubectl(ctx, "delete", "deployment/telescope", "deployment/antenna", "pod/director", "--timeout=1m"); err != nil {
		return err
	}
	return w.leased(ctx, 8)
}
