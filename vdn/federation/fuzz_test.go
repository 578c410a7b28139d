package federation

import (
	"bytes"
	"io"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/vdn"
)

// FuzzOffer has a peer send an arbitrary offer. Either it is rejected with the peer's name,
// or it is the offer of that domain, survives a round trip, and each of its networks is
// accepted or has a reason for its rejection.
func FuzzOffer(f *testing.F) {
	good := `{"domain":"busan","networks":[{"name":"science","prefixes":["10.9.0.0/24","fd00:9::/64"],"peerNetworks":["science"],"hosts":[{"owner":"a/b","addresses":["10.9.0.7"]}]}]}`
	f.Add(200, []byte(good))
	f.Add(200, []byte(strings.ReplaceAll(good, "10.9.0.0/24", "10.1.0.7/16")))
	f.Add(200, []byte(strings.ReplaceAll(good, `"science"`, `"../x"`)))
	f.Add(200, []byte(`{"domain":"busan","networks":[{},{}]}`))
	f.Add(200, []byte(`{"domain":"seoul"}`))
	f.Add(304, []byte{})
	f.Add(403, []byte("certificate for x: no peer with that domain is configured"))
	peer := vdn.Peer{Domain: "busan", URL: "https://busan:7474"}
	own := []vdn.Network{{Name: "science", Subnets: []vdn.Subnet{{CIDR: netip.MustParsePrefix("10.1.0.0/24")}}}}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		fuzzlimit.Time(t)
		a := offerClient{peer: peer}
		o, err := a.read(&http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body))})
		if err != nil {
			if !strings.Contains(err.Error(), "busan") || len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes: %.200v", len(err.Error()), err)
			}
			return
		}
		if o == nil {
			if status != http.StatusNotModified {
				t.Errorf("%d is nothing new", status)
			}
			return
		}
		text, tag, err := encode(*o)
		again, err2 := a.read(&http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(text))})
		if err != nil || err2 != nil || !reflect.DeepEqual(again, o) || tag == "" {
			t.Fatalf("%s is written as %s: %v, %v", body, text, err, err2)
		}
		for _, n := range vdn.Accept(own, nil, []vdn.PeerView{{Peer: peer, Networks: o.Networks}})[0].Networks {
			for _, p := range n.Prefixes {
				if n.Refused == "" && (!p.IsValid() || p.Overlaps(own[0].Subnets[0].CIDR)) {
					t.Errorf("%+v counts", n)
				}
			}
		}
	})
}
