package cni

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

func c100() *current.Result { return &current.Result{CNIVersion: "1.1.0"} }

// FuzzParse checks that arbitrary configurations are parsed or rejected.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"cniVersion":"1.1.0","name":"a","type":"fairlead-cni","timeout":"5s","dataDir":"/a","runtimeConfig":{"ips":["10.0.0.1/24"],"mac":"02:00:00:00:00:01"}}`,
		`{"cniVersion":"0.3.1","name":"a","ipam":{"type":"fairlead-ipam","network":"b","controller":"unix:///run/a"},"prevResult":{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.0.0.1/24"}]}}`,
		`{"name":"a","cni.dev/valid-attachments":[{"containerID":"a","ifname":"b"}]}`,
	} {
		f.Add([]byte(text), "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;IP=10.0.0.1,fd00::1;MAC=02:00:00:00:00:01")
	}
	f.Fuzz(func(t *testing.T, text []byte, env string) {
		fuzzlimit.Time(t)
		for _, parse := range []func([]byte) (Config, error){Parse, ParseIPAM} {
			c, err := parse(text)
			if err != nil {
				continue
			}
			if c.Network == "" || c.DataDir[0] != '/' || c.Timeout <= 0 {
				t.Errorf("%q is taken as %+v", text, c)
			}
			if _, mac, err := c.RuntimeConfig.read(); err == nil && mac != nil && len(mac) != 6 {
				t.Errorf("%q requests MAC %v", text, mac)
			}
		}
		if p, err := parseArgs(env); err == nil && p.mac != nil && len(p.mac) != 6 {
			t.Errorf("%q is taken as %+v", env, p)
		}
	})
}

// TestStandardInputIsBounded checks that an endless configuration is rejected, not
// buffered.
func TestStandardInputIsBounded(t *testing.T) {
	for _, name := range []string{"fairlead-cni", "fairlead-ipam"} {
		conf := `{"cniVersion":"1.1.0","name":"science","type":"` + name + `"}`
		for size, want := range map[int]string{maxConfig: "", maxConfig + 1: "configuration: longer than 1048576 bytes"} {
			cmd := exec.Command(filepath.Join(programs(t), name))
			cmd.Env = append(os.Environ(), "CNI_COMMAND=STATUS", "CNI_PATH=/x")
			cmd.Stdin = strings.NewReader(conf + strings.Repeat(" ", size-len(conf)))
			said, _ := cmd.Output() // no controller responds, which is a different error
			var no types.Error
			if err := json.Unmarshal(said, &no); err != nil {
				t.Fatalf("%s with %d bytes said %q: %v", name, size, said, err)
			}
			if got := no.Code == types.ErrInvalidNetworkConfig && strings.HasPrefix(no.Msg, "configuration: longer"); got != (want != "") {
				t.Errorf("%s with %d bytes: %v, want %q", name, size, no, want)
			}
		}
	}
}

// FuzzNote checks that an invalid note on disk is ignored, and that a valid one is of the
// requested attachment and survives a round trip.
func FuzzNote(f *testing.F) {
	f.Add([]byte(`{"id":"c1.net1","conf":"science","network":"science","controller":"http://127.0.0.1:7473","netns":"/run/netns/c1","whole":true,"nic":{"name":"eth1","mtu":1500,"boot":"x"}}`), "c1.net1")
	f.Add([]byte(`{"id":"c2.net1"}`), "c1.net1")
	f.Add([]byte(`{"id":`), "a")
	f.Fuzz(func(t *testing.T, text []byte, id string) {
		fuzzlimit.Time(t)
		if id == "" || len(id) > 100 || strings.ContainsAny(id, "/\x00") {
			return // no container has such an ID
		}
		n := notes{t.TempDir()}
		must(t, os.MkdirAll(filepath.Join(n.dir, attached), 0o700))
		must(t, os.WriteFile(n.file(attached, id), text, 0o600))
		one := n.read(attached, id)
		if len(n.all(attached)) > 1 || (one != nil) != (len(n.all(attached)) == 1) {
			t.Errorf("%q: read %+v, of all %+v", text, one, n.all(attached))
		}
		if one == nil {
			return
		}
		if one.ID != id || one.NIC != nil && one.NIC.Boot != bootID() {
			t.Errorf("%q is taken as %+v", text, one)
		}
		must(t, n.write(attached, *one))
		if again := n.read(attached, id); !reflect.DeepEqual(again, one) {
			t.Errorf("%+v is written and read as %+v", one, again)
		}
	})
}

// FuzzAlias checks that the alias of a device names its attachment as written.
func FuzzAlias(f *testing.F) {
	f.Add("fairlead c1.net1", "c1.net1", "eth1")
	f.Add("fairlead ", "", "")
	f.Fuzz(func(t *testing.T, alias, id, nic string) {
		fuzzlimit.Time(t)
		link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Alias: alias}}
		if got, name := marked(link); (got != "" || name != "") && !strings.HasPrefix(alias, mark+got) {
			t.Errorf("%q is %q, %q", alias, got, name)
		}
		if strings.Contains(id, " ") || id == "" {
			return // no container has such an ID
		}
		link.Alias = mark + id + " " + nic
		if got, name := marked(link); got != id || name != nic {
			t.Errorf("%q is %q, %q", link.Alias, got, name)
		}
	})
}

// FuzzDaemonAnswer has the node's daemon send arbitrary responses: yes, not yet, or an
// error of bounded length.
func FuzzDaemonAnswer(f *testing.F) {
	f.Add(200, []byte{})
	f.Add(304, []byte{})
	f.Add(503, []byte(`{"error":"device net1 is no port of the bridge"}`))
	f.Add(400, []byte(`{"error":`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		fuzzlimit.Time(t)
		daemon := &http.Client{Transport: answers(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(bytes.NewReader(body))}, nil
		})}
		done, err := ask(t.Context(), daemon, "http://node/applied")
		if done != (status == http.StatusOK) || (err == nil) != (status == http.StatusOK || status == http.StatusNotModified) {
			t.Errorf("%d %q: %v, %v", status, body, done, err)
		}
		if err != nil && len(err.Error()) > 5000*3 { // replacing invalid UTF-8 makes it longer
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}

type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
