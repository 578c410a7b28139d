package nodes

import (
	"bytes"
	_ "embed"
	"os"
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

// configure writes what containerd and kubelet are told.
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
	values := map[string]string{
		"Dir": n.dir, "Socket": n.containerd, "Pause": pauseImage, "PodCIDR": n.PodCIDR, "Cgroup": n.cgroup.name,
		"Addr": n.Addr.String(), "DNS": controlAddr.String(), "CA": authority, "Cert": cert, "Key": key,
		"Segment": segment.String(), "FlatFirst": flatAddr(n.number, 0).String(), "FlatLast": flatAddr(n.number, flatPods-1).String(),
	}
	for _, folder := range []string{"cni", "cni-flat"} {
		if err := os.MkdirAll(n.file(folder), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"containerd.toml": containerdConfig, "kubelet.yaml": kubeletConfig, "cni/pod.conflist": podNetwork, "cni-flat/flat.conflist": flatNetwork,
		"resolv.conf": "nameserver {{.DNS}}\n",
	} {
		parsed, err := template.New(name).Option("missingkey=error").Parse(text)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := parsed.Execute(&b, values); err != nil {
			return err
		}
		if err := os.WriteFile(n.file(name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
