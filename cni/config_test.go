package cni

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

func c100() *current.Result { return &current.Result{CNIVersion: "1.1.0"} }

// FuzzParse: whatever a runtime is made to say, it is read or refused.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"cniVersion":"1.1.0","name":"a","type":"fairlead-cni","timeout":"5s","dataDir":"/a","runtimeConfig":{"ips":["10.0.0.1/24"],"mac":"02:00:00:00:00:01"}}`,
		`{"cniVersion":"0.3.1","name":"a","ipam":{"type":"fairlead-ipam","network":"b","controller":"unix:///run/a"},"prevResult":{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.0.0.1/24"}]}}`,
		`{"name":"a","cni.dev/valid-attachments":[{"containerID":"a","ifname":"b"}]}`,
	} {
		f.Add([]byte(text), "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;IP=10.0.0.1,fd00::1;MAC=02:00:00:00:00:01")
	}
	f.Fuzz(func(t *testing.T, text []byte, env string) {
		for _, parse := range []func([]byte) (Config, error){Parse, ParseIPAM} {
			c, err := parse(text)
			if err != nil {
				continue
			}
			if c.Network == "" || c.Node == "" || c.DataDir[0] != '/' || c.Timeout <= 0 {
				t.Errorf("%q is taken as %+v", text, c)
			}
			if _, mac, err := c.Wishes.read(); err == nil && mac != nil && len(mac) != 6 {
				t.Errorf("%q wishes for MAC %v", text, mac)
			}
		}
		if p, err := parseArgs(env); err == nil && p.mac != nil && len(p.mac) != 6 {
			t.Errorf("%q is taken as %+v", env, p)
		}
	})
}

// A configuration that does not end is refused, not read into memory.
func TestStandardInputIsBounded(t *testing.T) {
	for _, name := range []string{"fairlead-cni", "fairlead-ipam"} {
		conf := `{"cniVersion":"1.1.0","name":"science","type":"` + name + `"}`
		for size, want := range map[int]string{maxConfig: "", maxConfig + 1: "configuration: longer than 1048576 bytes"} {
			cmd := exec.Command(filepath.Join(programs(t), name))
			cmd.Env = append(os.Environ(), "CNI_COMMAND=STATUS", "CNI_PATH=/x")
			cmd.Stdin = strings.NewReader(conf + strings.Repeat(" ", size-len(conf)))
			said, _ := cmd.Output() // no controller answers: that is another error
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
