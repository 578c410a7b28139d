package cni

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/lab/testkit"
)

// examples returns the fenced blocks of docs/cni.md in a language.
func examples(t *testing.T, language string) (all []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/cni.md")
	must(t, err)
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)\n```").FindAllStringSubmatch(string(page), -1) {
		all = append(all, m[1])
	}
	return all
}

// TestExamplesInThePage checks that the plugins accept their examples.
func TestExamplesInThePage(t *testing.T) {
	all := examples(t, "json")
	if len(all) != 3 {
		t.Fatalf("there are %d", len(all))
	}
	list, err := libcni.NetworkConfFromBytes([]byte(all[0]))
	must(t, err)
	c, err := Parse([]byte(strings.Replace(string(list.Plugins[0].Bytes), "{", `{"name":"science",`, 1)))
	must(t, err)
	if c.Network != "science" || c.Controller != "https://vdn.example:7473" || c.TokenFile == "" || c.CAFile == "" {
		t.Errorf("the main network's is %+v", c)
	}
	var asked []struct { // what Multus passes on
		Name, Interface string
		RuntimeConfig
	}
	decoder := json.NewDecoder(strings.NewReader(all[1]))
	decoder.DisallowUnknownFields()
	must(t, decoder.Decode(&asked))
	if addrs, mac, err := asked[0].read(); err != nil || len(addrs) != 2 || mac == nil || asked[0].Interface == "" {
		t.Errorf("a pod asks for %v %v, %v", addrs, mac, err)
	}
	if c, err = ParseIPAM([]byte(all[2])); err != nil || c.Network != "science" {
		t.Errorf("the one for other plugins is %+v, %v", c, err)
	}
}

// TestPageNamesEveryKey checks that the page has every key, its default, and every error
// code.
func TestPageNamesEveryKey(t *testing.T) {
	page, err := os.ReadFile("../../docs/cni.md")
	must(t, err)
	for _, word := range []string{"`network`", "`controller`", "`tokenFile`", "`caFile`", "`node`", "`timeout`", "`defaultRoute`", "`dataDir`",
		"`" + DefaultDataDir + "`", "`" + DefaultTimeout.String() + "`", "| 5 |", "| 8 |", "| 50 |", "| 51 |", "| 100 |", "| 101 |", "| 102 |", "| 999 |"} {
		if !strings.Contains(string(page), word) {
			t.Errorf("docs/cni.md does not name %s", word)
		}
	}
}

// TestMainAndSecondary attaches a pod to two networks as Multus does: first the cluster's,
// then the one of the page's NetworkAttachmentDefinition.
func TestMainAndSecondary(t *testing.T) {
	r := newRigAt(t, "127.0.0.1:7473")
	var definition struct{ Spec struct{ Config string } }
	must(t, yaml.Unmarshal([]byte(examples(t, "yaml")[0]), &definition))
	var plain map[string]any
	must(t, json.Unmarshal([]byte(definition.Spec.Config), &plain))
	delete(plain, "name") // a list has its own
	text, err := json.Marshal(plain)
	must(t, err)
	primary, err := libcni.NetworkConfFromBytes([]byte(`{"cniVersion":"1.1.0","name":"main","plugins":[` + r.plugin("tiny") + `]}`))
	must(t, err)
	secondary, err := libcni.NetworkConfFromBytes([]byte(`{"cniVersion":"1.1.0","name":"telescope","plugins":[` + string(text) + `]}`))
	must(t, err)
	runtime := libcni.NewCNIConfigWithCacheDir([]string{programs(t)}, t.TempDir(), nil)
	pod, ctx := testkit.NetNS(t), context.Background()
	eth0 := &libcni.RuntimeConf{ContainerID: "one", NetNS: pod.Path(), IfName: "eth0", Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "lab"}, {"K8S_POD_NAME", "telescope"}}}
	net1 := *eth0
	net1.IfName, net1.CapabilityArgs = "net1", map[string]any{"ips": []string{"10.9.0.44/24"}, "mac": "02:00:00:00:00:44"}
	_, err = runtime.AddNetworkList(ctx, primary, eth0)
	must(t, err)
	_, err = runtime.AddNetworkList(ctx, secondary, &net1)
	must(t, err)
	if have := links(t, pod); !slices.Equal(have, []string{"eth0", "net1"}) {
		t.Errorf("the pod has %q", have)
	}
	reaches(t, r.lan, pod, netip.MustParseAddr("10.9.0.44"))
	a, err := r.store.Attachment("one.net1")
	must(t, err)
	if a.Owner != "lab/telescope" || a.MAC != "02:00:00:00:00:44" {
		t.Errorf("the controller knows %+v", a)
	}
	must(t, runtime.CheckNetworkList(ctx, primary, eth0))
	must(t, runtime.CheckNetworkList(ctx, secondary, &net1))
	must(t, runtime.GetStatusNetworkList(ctx, secondary))
	must(t, runtime.DelNetworkList(ctx, secondary, &net1))
	must(t, runtime.DelNetworkList(ctx, primary, eth0))
	r.nothingLeft()
	if left, _ := filepath.Glob(DefaultDataDir + "/*/*"); len(left) > 0 {
		t.Errorf("notes are left: %q", left)
	}
}
