package cloudroutes

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab/testkit"
)

var some = []route.Route{{Prefix: netip.MustParsePrefix("10.1.1.0/24"), NextHop: netip.MustParseAddr("10.0.0.1")}}

// TestNobodyThere checks that an agent whose API server is unreachable continues to work
// and can exit, and that it reports the problem.
func TestNobodyThere(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := "http://" + ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{
		Client: &rest.Config{Host: host}, Namespace: "fairlead", Node: "a", Patience: 300 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Peers()[0]; got.State != "waiting" || got.Sent != 0 {
		t.Errorf("before the first offer: %+v", got)
	}
	if err := p.Set(some); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		got := p.Peers()[0]
		if got.Address != "cloud" || got.State != cloud.Failing || !strings.Contains(got.LastError, "refused") || got.Sent != 1 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	if err := p.Set(nil); err != nil {
		t.Error(err)
	}
	left := p.Withdrawing()
	if len(left) != 2 || left[0].Prefix.Bits() != 0 || !strings.Contains(left[0].String(), "waiting for withdrawal from cloud since ") || !strings.Contains(left[0].Reason, "refused") {
		t.Errorf("nobody has confirmed anything, and waited for is %v", left)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestOfferText(t *testing.T) {
	text := encode("1", some)
	if text != `{"serial":"1","routes":[{"prefix":"10.1.1.0/24","nextHop":"10.0.0.1"}]}` {
		t.Error(text)
	}
	if got, err := decode("a", text); err != nil || !reflect.DeepEqual(got, cloud.Offer{Node: "a", Routes: some}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, wrong := range []string{"", "{", `{"routes":[{"prefix":"10.1.1.1/24","nextHop":"10.0.0.1"}]}`, `{"routes":[{"prefix":"10.1.1.0/24"}]}`} {
		if got, err := decode("a", wrong); err == nil || !strings.Contains(err.Error(), "of node a") {
			t.Errorf("%q is %+v, %v", wrong, got, err)
		}
	}
	if sum(text) == sum(encode("2", some)) {
		t.Error("an offer that is made again is the same")
	}
}
