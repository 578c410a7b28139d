package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/convert"
	"github.com/fairlead/fairlead/cmd/internal/clitest"
	"github.com/fairlead/fairlead/source/importer"
	"github.com/fairlead/fairlead/source/importer/ipvsadm"
	"github.com/fairlead/fairlead/source/importer/keepalived"
	"github.com/fairlead/fairlead/source/importer/metallb"
)

// TestImportedCommandsAreRight checks that the agent command that an import prints is
// valid.
func TestImportedCommandsAreRight(t *testing.T) {
	const peers = `
{apiVersion: metallb.io/v1beta2, kind: BGPPeer, metadata: {name: a}, spec: {myASN: 64512, peerASN: 64513, peerAddress: 192.0.2.1, bfdProfile: x}}
---
{apiVersion: metallb.io/v1beta2, kind: BGPPeer, metadata: {name: b}, spec: {myASN: 64512, peerASN: 64512, peerAddress: "2001:db8::1"}}
---
{apiVersion: metallb.io/v1beta1, kind: L2Advertisement, metadata: {name: segment}, spec: {interfaces: [eth0]}}
`
	r, err := metallb.Read([]metallb.File{{Name: "peers.yaml", Text: []byte(peers)}})
	if err != nil {
		t.Fatal(err)
	}
	tunnels, err := ipvsadm.Read("rules", []byte("-A -t 10.1.1.1:80\n-a -t 10.1.1.1:80 -r 10.0.0.1:80 -i --tun-type gue --tun-port 6090\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{r.Command(), tunnels.Command()} {
		if err := program.CheckLine(command); err != nil {
			t.Errorf("%q: %v", command, err)
		}
	}
	if want := "fairlead agent --manifest-dir /etc/fairlead/services --local-asn 64512 --l2-interfaces eth0"; r.Command() != want {
		t.Errorf("%q, want %q", r.Command(), want)
	}
	// Its objects are files in the directory, like those of Services.
	dir := t.TempDir()
	if err := convert.WriteManifests(dir, r); err != nil {
		t.Fatal(err)
	}
	var files []string
	all, err := os.ReadDir(dir)
	for _, f := range all {
		files = append(files, f.Name())
	}
	if want := "advertisement-segment.yaml bgppeer-a.yaml bgppeer-b.yaml"; err != nil || strings.Join(files, " ") != want {
		t.Errorf("files %v, %v; want %s", files, err, want)
	}
}

// TestImportPageIsRight checks that the output shown on the page results from its
// example.
func TestImportPageIsRight(t *testing.T) {
	const name = "docs/import.md"
	page := clitest.Pages(t)[name]
	var conf, shown string
	for _, s := range clitest.Snippets(page) {
		switch {
		case conf == "" && strings.HasPrefix(s.Text, "virtual_server"):
			conf = s.Text
		case conf != "" && shown == "" && s.Language == "yaml":
			shown = s.Text
		}
	}
	marks := importer.Marks{}
	if err := marks.Set("1=10.1.1.1:81"); err != nil {
		t.Fatal(err)
	}
	r, err := keepalived.Read(keepalived.File{Name: "keepalived.conf", Text: []byte(conf)}, keepalived.Options{Marks: marks})
	if err != nil {
		t.Fatal(err)
	}
	got := string(r.YAML())
	if *updatePages && shown != "" {
		if err := os.WriteFile(filepath.Join(clitest.Repository, name), []byte(strings.Replace(page, shown, got, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != shown {
		t.Errorf("%s shows:\n%s\nbut it is:\n%s\n(go test ./cmd/fairlead -update rewrites it)", name, shown, got)
	}
}

var updatePages = flag.Bool("update", false, "write the generated pages again")
