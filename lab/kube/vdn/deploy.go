package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// vdnAddr is the address of the controller's Service, which plugins and daemons use.
const vdnAddr = "10.96.0.73"

// claim is the volume for the controller's file, on the first node.
const claim = `apiVersion: v1
kind: PersistentVolume
metadata: {name: fairlead-vdn}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  local: {path: /var/lib/vdn}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: fairlead-vdn, namespace: fairlead}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  volumeName: fairlead-vdn
  resources: {requests: {storage: 1Gi}}
`

// kustomization patches the plain manifests for this cluster.
const kustomization = `resources: [vdn.yaml]
images:
  - {name: %s, newTag: %q}
patches:
  - target: {kind: Service, name: fairlead-vdn}
    patch: |
      - {op: add, path: /spec/clusterIP, value: %[3]s}
  - target: {kind: DaemonSet, name: fairlead-vdn-node}
    patch: |
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--controller=https://%[3]s:7473"}
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --uplink=eth2=1G}
`

// install runs the controller in the cluster, and the daemon and plugins on every node,
// as described in docs/kubernetes.md.
func (w *world) install(ctx context.Context) error {
	for _, path := range []string{"deploy/crds/*.yaml", "deploy/manifests/namespace.yaml"} {
		if err := w.applyFiles(ctx, path); err != nil {
			return err
		}
	}
	if err := w.Nodes[0].Place.Do(func() error { return os.Mkdir("/var/lib/vdn", 0o755) }); err != nil {
		return err
	}
	if err := errors.Join(w.Apply(ctx, fmt.Sprintf(claim, w.Nodes[0].Name)), w.Apply(ctx, networks), w.secrets(ctx)); err != nil {
		return err
	}
	manifest, err := os.ReadFile(filepath.Join(w.root, "deploy/manifests/vdn/vdn.yaml"))
	if err != nil {
		return err
	}
	name, tag, _ := strings.Cut(w.image, ":")
	if err := errors.Join(w.write("vdn.yaml", string(manifest)), w.write("kustomization.yaml", fmt.Sprintf(kustomization, name, tag, vdnAddr))); err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "apply", "-k", w.work); err != nil {
		return err
	}
	for _, what := range []string{"deployment/fairlead-vdn", "daemonset/fairlead-vdn-node"} {
		if _, err := w.Kubectl(ctx, "--namespace", "fairlead", "rollout", "status", what, "--timeout=2m"); err != nil {
			return err
		}
	}
	return w.knowController(ctx)
}

// applyFiles applies files of the checkout.
func (w *world) applyFiles(ctx context.Context, pattern string) error {
	all, err := filepath.Glob(filepath.Join(w.root, pattern))
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no file matches %s", pattern)
	}
	for _, path := range all {
		text, e := os.ReadFile(path)
		if e == nil {
			e = w.Apply(ctx, string(text))
		}
		err = errors.Join(err, e)
	}
	return err
}

// secrets creates the controller's certificate and its clients' token.
func (w *world) secrets(ctx context.Context) error {
	cert, key, err := w.Certificate("vdn", netip.MustParseAddr(vdnAddr))
	if err != nil {
		return err
	}
	authority, _ := w.Authority()
	_, err = w.Kubectl(ctx, "--namespace", "fairlead", "create", "secret", "generic", "fairlead-vdn-tls", "--type=kubernetes.io/tls",
		"--from-file=tls.crt="+cert, "--from-file=tls.key="+key, "--from-file=ca.crt="+authority)
	if err != nil {
		return err
	}
	_, err = w.Kubectl(ctx, "--namespace", "fairlead", "create", "secret", "generic", "fairlead-vdn-token", "--from-file=token="+w.file("token"))
	return err
}

// knowController finds the controller's address for clients outside the cluster, and
// checks that the nodes have reported to it.
func (w *world) knowController(ctx context.Context) error {
	said, err := w.Kubectl(ctx, "--namespace", "fairlead", "get", "pods", "--selector", "app.kubernetes.io/component=vdn",
		"--output", "jsonpath={.items[*].metadata.uid} {.items[*].status.podIP}")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(said, &w.controller.uid, &w.controller.addr); err != nil {
		return fmt.Errorf("the controller's pod: %q: %w", said, err)
	}
	return w.await(ctx, "nodes enforce all networks", func() error {
		v, err := w.view()
		if err != nil {
			return err
		}
		for _, n := range v.Nodes {
			held := map[string]bool{}
			for _, c := range n.Counters {
				held[c.Network] = true
			}
			if !n.Alive || n.Error != "" || len(held) != strings.Count(networks, "kind: VirtualNetwork") {
				return fmt.Errorf("node %s: %+v", n.Name, n)
			}
		}
		if len(v.Nodes) != len(w.Nodes) {
			err = fmt.Errorf("%d nodes: %+v", len(v.Nodes), v.Nodes)
		}
		return err
	})
}

// uninstall deletes everything, and cleans up the nodes' kernels, including the state of
// the service proxy, which must stop for that.
func (w *world) uninstall(ctx context.Context) error {
	if _, err := w.Kubectl(ctx, "delete", "-k", w.work, "--timeout=2m"); err != nil {
		return err
	}
	for _, n := range w.Nodes {
		if err := n.End("fairlead"); err != nil {
			return err
		}
	}
	cleanup, err := os.ReadFile(filepath.Join(w.root, "deploy/manifests/cleanup/cleanup.yaml"))
	if err != nil {
		return err
	}
	if err := w.write("cleanup.yaml", strings.ReplaceAll(string(cleanup), "localhost/fairlead:devel", w.image)); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "-f", w.file("cleanup.yaml")},
		{"--namespace", "fairlead", "rollout", "status", "daemonset/fairlead-cleanup", "--timeout=2m"},
		{"delete", "-f", w.file("cleanup.yaml"), "--timeout=2m"},
	} {
		if _, err := w.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	w.Say("everything is uninstalled, and the kernels of the nodes are cleaned up")
	return nil
}
