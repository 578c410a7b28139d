package cloudroutes

import (
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzOffer checks that an annotation is rejected with its node, or that its routes survive
// a round trip.
func FuzzOffer(f *testing.F) {
	f.Add("a", encode("1", some))
	f.Add("a", `{"routes":[{"prefix":"10.1.1.1/24","nextHop":"10.0.0.1"}]}`)
	f.Add("a", `{"routes":[{"prefix":"fd00::/64","nextHop":"fe80::1%eth0"}]}`)
	f.Add("", `{"routes":null}`)
	f.Fuzz(func(t *testing.T, node, text string) {
		fuzzlimit.Time(t)
		offer, err := decode(node, text)
		if err != nil {
			if !strings.Contains(err.Error(), "of node "+node) {
				t.Errorf("%v does not name the node", err)
			}
			return
		}
		if again, err := decode(node, encode("1", offer.Routes)); err != nil || !reflect.DeepEqual(again, offer) {
			t.Errorf("%q is %+v, then %+v, %v", text, offer, again, err)
		}
	})
}
