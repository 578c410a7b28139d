package nodes

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

var (
	//go:embed containerd.toml.tmpl
	containerdConfig string
	//go:embed kubelet.yaml.tmpl
	kubeletConfig string
	//go:embed pod.conflist.tmpl
	podNetwork string
	//go:embed flat.conflist.tmpl
	flatNetwork string
)

// configure writes the configuration of containerd and kubelet.
func (n *Node) configure() error {
	c := n.Cluster
	cert, key, err := c.Certificate(n.Name, n.Addr)
	if err != nil {
		return err
	}
	kubeconfig, err := c.KubeconfigFor("system:node:"+n.Name, "system:nodes")
	if err != nil {
		return err
	}
	if err := os.Rename(kubeconfig, n.file("kubeconfig")); err != nil {
		return err
	}
	authority, _ := c.Authority()
	handlers := append([]Handler{{Name: Flat, Network: flatNetwork}}, c.opts.Handlers...)
	values := map[string]any{
		"Name": n.Name, "Handlers": handlers,
		"Dir": n.dir, "Plugins": pluginDir, "Socket": n.containerd, "Pause": pauseImage, "PodCIDR": n.PodCIDR, "Cgroup": n.cgroup.name,
		"Kubeconfig": c.Kubeconfig, "Addr": n.Addr.String(), "DNS": controlAddr.String(), "CA": authority, "Cert": cert, "Key": key,
		"Segment": segment.String(), "FlatFirst": flatAddr(n.number, 0).String(), "FlatLast": flatAddr(n.number, flatPods-1).String(),
	}
	files := map[string]string{
		"containerd.toml": containerdConfig, "kubelet.yaml": kubeletConfig, "cni/pod.conflist": podNetwork,
		"resolv.conf": "nameserver {{.DNS}}\n",
	}
	for _, h := range handlers {
		files["cni-"+h.Name+"/"+h.Name+".conflist"] = h.Network
	}
	if err := n.Place.Do(n.linkPlugins); err != nil {
		return err
	}
	for name, text := range files {
		parsed, err := template.New(name).Option("missingkey=error").Parse(text)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := parsed.Execute(&b, values); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(n.file(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(n.file(name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pluginDir is where a node's container runtime looks for network plugins; each node has
// its own /opt.
const pluginDir = "/opt/cni/bin"

// linkPlugins links all network plugins there.
func (n *Node) linkPlugins() error {
	plugins, err := filepath.Glob("/usr/lib/cni/*")
	if err != nil || len(plugins) == 0 {
		return fmt.Errorf("no network plugins in /usr/lib/cni (%v); scripts/deps.sh cluster installs them", err)
	}
	if err := os.MkdirAll(pluginDir, 0o755); err != nil {
		return err
	}
	for _, path := range append(plugins, n.Cluster.opts.Plugins...) {
		if err := os.Symlink(path, filepath.Join(pluginDir, filepath.Base(path))); err != nil {
			return err
		}
	}
	return nil
}
