package cni

import (
	"testing"

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
