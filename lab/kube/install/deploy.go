package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/lab/kube/nodes"
)

// way is a method to install what this cluster needs, and to remove it when no agent runs
// any more.
type way struct {
	install, cleanup, remove func(*world, context.Context) error
	// parts are the installed workloads.
	parts []string
}

var ways = map[string]way{
	"manifests": {
		(*world).applyManifests, (*world).applyCleanup, (*world).deleteManifests,
		[]string{"daemonset/fairlead-agent", "deployment/fairlead-controller"},
	},
	"chart": {
		(*world).installChart, (*world).upgradeToCleanup, (*world).uninstallChart,
		[]string{"daemonset/fairlead-agent", "deployment/fairlead-controller", "deployment/fairlead-reflector", "deployment/fairlead-balancer-own"},
	},
}

// apiServer is its address while nothing serves its Service.
const apiServer = "172.30.0.10"

// cgroup returns the cgroup that is the root for the nodes, because they share a machine:
// the folder on each node, and the flag that names it in the agents' pods.
func (w *world) cgroup() (folder, flag string) {
	n := w.Nodes[0]
	folder, name := filepath.Split(n.Cgroup())
	return filepath.Clean(folder), "--cgroup=/host/cgroup/" + strings.TrimSuffix(name, n.Name) + "$(NODE_NAME)"
}

func (w *world) apiPort() string {
	return w.Config.Host[strings.LastIndexByte(w.Config.Host, ':')+1:]
}

// applyManifests patches the plain manifests for this cluster and applies them.
func (w *world) applyManifests(ctx context.Context) error {
	folder := filepath.Join(w.work, "deploy")
	if err := os.CopyFS(filepath.Join(folder, "fairlead"), os.DirFS(filepath.Join(w.root, "deploy"))); err != nil {
		return err
	}
	// The agents that are also a service proxy.
	err := os.Rename(filepath.Join(folder, "fairlead/manifests/proxy/agent.yaml"), filepath.Join(folder, "fairlead/manifests/agent.yaml"))
	if err != nil {
		return err
	}
	name, tag, _ := strings.Cut(w.image, ":")
	cgroups, cgroup := w.cgroup()
	err = w.write(folder, "kustomization.yaml", fmt.Sprintf(`resources: [fairlead]
images:
  - {name: %s, newTag: %q}
patches:
  - target: {kind: DaemonSet, name: fairlead-agent}
    patch: |
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --peer=%s}
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --bfd=false}
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: %s}
      - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: KUBERNETES_SERVICE_HOST, value: %s}}
      - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: KUBERNETES_SERVICE_PORT, value: "%s"}}
      - {op: replace, path: /spec/template/spec/volumes/2/hostPath/path, value: %s}
`, name, tag, routerAddr, cgroup, apiServer, w.apiPort(), cgroups))
	if err == nil {
		_, err = w.Kubectl(ctx, "apply", "-k", folder)
	}
	return err
}

func (w *world) deleteManifests(ctx context.Context) error {
	_, err := w.Kubectl(ctx, "delete", "-k", filepath.Join(w.work, "deploy"), "--ignore-not-found", "--timeout=2m")
	return err
}

// applyCleanup runs the cleanup of the nodes' kernels.
func (w *world) applyCleanup(ctx context.Context) error {
	cleanup, err := os.ReadFile(filepath.Join(w.root, "deploy/manifests/cleanup/cleanup.yaml"))
	if err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "--namespace", "fairlead", "delete", "daemonset", "fairlead-agent", "--timeout=2m"); err != nil {
		return err
	}
	if err := w.apply(ctx, "cleanup.yaml", strings.ReplaceAll(string(cleanup), "localhost/fairlead:devel", w.image)); err != nil {
		return err
	}
	if err := w.cleaned(ctx); err != nil {
		return err
	}
	_, err = w.Kubectl(ctx, "delete", "-f", filepath.Join(w.work, "cleanup.yaml"), "--timeout=1m")
	return err
}

// cleaned waits until the cleanup is done on all nodes.
func (w *world) cleaned(ctx context.Context) error {
	_, err := w.Kubectl(ctx, "--namespace", "fairlead", "rollout", "status", "daemonset/fairlead-cleanup", "--timeout=3m")
	return err
}

// reflectorID is no node's address: the agent on the reflector's node has that.
const reflectorID = "172.30.0.1"

// installChart installs the chart with this cluster's values: agents and load balancers
// peer with a reflector on the first node, and a Service has dedicated load balancers in
// pods on the router's segment. The CRDs are there before, and the chart then takes them
// over.
func (w *world) installChart(ctx context.Context) error {
	if err := w.apply(ctx, "flat.yaml", "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: flat}, handler: "+nodes.Flat+"}\n"); err != nil {
		return err
	}
	name, tag, _ := strings.Cut(w.image, ":")
	cgroups, cgroup := w.cgroup()
	first := w.Nodes[0]
	if err := w.write(w.work, "values.yaml", fmt.Sprintf(`image: {repository: %s, tag: %q}
agent:
  roles: [balancer, dsr, proxy]
  apiServer: {host: %s, port: %s}
  extraArgs: ["%s"]
bgp: {peers: [%s], bfd: false}
proxy: {cgroup: %s}
balancers: [{name: own, service: default/own, replicas: 1, runtimeClassName: flat}]
reflector:
  enabled: true
  nodeSelector: {kubernetes.io/hostname: %s}
  routerID: %s
  clients: [172.30.0.0/24]
  routers: [%s]
`, name, tag, apiServer, w.apiPort(), cgroup, first.Addr, cgroups, first.Name, reflectorID, routerAddr)); err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(w.root, "deploy/crds")); err != nil {
		return err
	}
	if err := w.helm(ctx, "install", "fairlead", w.chart(), "--create-namespace", "--values", filepath.Join(w.work, "values.yaml"), "--set", "crds.install=false"); err != nil {
		return err
	}
	return w.helm(ctx, "upgrade", "fairlead", w.chart(), "--reuse-values", "--set", "crds.install=true", "--take-ownership")
}

func (w *world) chart() string { return filepath.Join(w.root, "deploy/helm/fairlead") }

// upgradeToCleanup removes the agents, and runs the cleanup.
func (w *world) upgradeToCleanup(ctx context.Context) error {
	err := w.helm(ctx, "upgrade", "fairlead", w.chart(), "--reuse-values", "--set", "agent.enabled=false,cleanup.enabled=true")
	if err != nil {
		return err
	}
	return w.cleaned(ctx)
}

func (w *world) uninstallChart(ctx context.Context) error {
	return w.helm(ctx, "uninstall", "fairlead", "--wait", "--timeout=2m")
}

func (w *world) helm(ctx context.Context, args ...string) error {
	_, err := w.Tool(ctx, filepath.Join(w.root, "bin/tools/helm"), append([]string{"--namespace", "fairlead"}, args...)...)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: make manifests builds it", err)
	}
	return err
}

func (w *world) write(folder, name, text string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644)
}

// apply applies a YAML text.
func (w *world) apply(ctx context.Context, name, text string) error {
	if err := w.write(w.work, name, text); err != nil {
		return err
	}
	_, err := w.Kubectl(ctx, "apply", "-f", filepath.Join(w.work, name))
	return err
}
