package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/lab/sandbox"
)

// render are the ways to make a folder of which kubectl apply -k installs what
// this cluster needs.
var render = map[string]func(w *world, ctx context.Context, folder string) error{
	"manifests": (*world).renderManifests, "chart": (*world).renderChart,
}

// apiServer is where it is reached while nothing serves its Service.
const apiServer = "172.30.0.10"

// cgroup is what the nodes have for the root of all, as they share a machine: the
// folder where it is on each, and the flag that names it in the agents' pods.
func (w *world) cgroup() (folder, flag string) {
	n := w.Nodes[0]
	folder, name := filepath.Split(n.Cgroup())
	return filepath.Clean(folder), "--cgroup=/host/cgroup/" + strings.TrimSuffix(name, n.Name) + "$(NODE_NAME)"
}

func (w *world) apiPort() string {
	return w.Config.Host[strings.LastIndexByte(w.Config.Host, ':')+1:]
}

// renderManifests lays what is this cluster's own over the plain manifests.
func (w *world) renderManifests(_ context.Context, folder string) error {
	if err := os.CopyFS(filepath.Join(folder, "fairlead"), os.DirFS(filepath.Join(w.root, "deploy"))); err != nil {
		return err
	}
	// The agents that are a service proxy, too.
	err := os.Rename(filepath.Join(folder, "fairlead/manifests/proxy/agent.yaml"), filepath.Join(folder, "fairlead/manifests/agent.yaml"))
	if err != nil {
		return err
	}
	name, tag, _ := strings.Cut(w.image, ":")
	cgroups, cgroup := w.cgroup()
	return w.write(folder, "kustomization.yaml", fmt.Sprintf(`resources: [fairlead]
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
}

// renderChart renders it with this cluster's values.
func (w *world) renderChart(ctx context.Context, folder string) error {
	name, tag, _ := strings.Cut(w.image, ":")
	cgroups, cgroup := w.cgroup()
	if err := w.write(folder, "values.yaml", fmt.Sprintf(`image: {repository: %s, tag: %q}
createNamespace: true
agent:
  roles: [balancer, server, proxy]
  apiServer: {host: %s, port: %s}
  extraArgs: ["%s"]
bgp: {peers: [%s], bfd: false}
proxy: {cgroup: %s}
balancers: [{name: own, service: default/own}]
`, name, tag, apiServer, w.apiPort(), cgroup, routerAddr, cgroups)); err != nil {
		return err
	}
	helm := exec.CommandContext(ctx, filepath.Join(w.root, "bin/tools/helm"), "template", "fairlead", filepath.Join(w.root, "deploy/helm/fairlead"),
		"--namespace", "fairlead", "--kube-version", "1.36", "--include-crds", "--values", filepath.Join(folder, "values.yaml"))
	var all, said bytes.Buffer
	helm.Stdout, helm.Stderr = &all, &said
	if err := helm.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s: make manifests builds it", helm.Path, err, &said)
	}
	if err := w.write(folder, "all.yaml", all.String()); err != nil {
		return err
	}
	return w.write(folder, "kustomization.yaml", "resources: [all.yaml]\n")
}

func (w *world) write(folder, name, text string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644)
}

// kubectl runs it where the API server is reached.
func (w *world) kubectl(ctx context.Context, args ...string) (string, error) {
	return w.tool(ctx, filepath.Join(w.Binaries, "kubectl"), args...)
}

// tool runs a program of users', and gives what it says.
func (w *world) tool(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig, "HOME="+sandbox.WorkDir,
		"PATH="+strings.Join([]string{filepath.Join(w.root, "bin"), w.Binaries, os.Getenv("PATH")}, ":"))
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	p, err := w.Control.Start(cmd)
	if err != nil {
		return "", err
	}
	if err := p.Wait(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, &b)
	}
	return b.String(), nil
}

// apply makes what a text in YAML says.
func (w *world) apply(ctx context.Context, name, text string) error {
	if err := w.write(w.work, name, text); err != nil {
		return err
	}
	_, err := w.kubectl(ctx, "apply", "-f", filepath.Join(w.work, name))
	return err
}
