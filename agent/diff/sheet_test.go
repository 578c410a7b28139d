package diff

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
)

func TestSheet(t *testing.T) {
	before := web(80, 3, func(f *desired.Frontend) { f.Survival = service.HashOnly })
	after := web(80, 2, func(f *desired.Frontend) { f.Survival, f.Backends[0].Weight = service.HashOnly, 5 })
	r, err := Of(Input{
		Programmed: map[service.Key]desired.Frontend{before.Key: before}, Before: planOf(before), After: planOf(after, web(81, 1)),
		Advertises: true, Advertised: []route.Route{{Prefix: advertised.Prefix, NextHop: backend(9).Addr()}},
		Preview: moves(backend(1)), Flows: flowsTo(established, 1, 2, 3),
		Problems: []problem.Problem{{Where: "web.yaml:3", Object: "Service default/x", Message: "is wrong"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `rejected, the previous version stays in use: web.yaml:3: Service default/x: is wrong
connections at risk: 2
OBJECT                         CHANGE           DETAILS
default/web80 TCP 10.1.1.1:80  changed          25.0 % of 251 slots move; 3 connections tracked
default/web80 TCP 10.1.1.1:80  backend changed  172.16.1.1:80, weight 1 → 5
default/web80 TCP 10.1.1.1:80  backend removed  172.16.1.3:80, weight 1
default/web80 TCP 10.1.1.1:80  at risk          1 connection: backend removed
default/web80 TCP 10.1.1.1:80  at risk          1 connection: hash-only: 25.0 % of the slots move
default/web81 TCP 10.1.1.1:81  added
default/web81 TCP 10.1.1.1:81  backend added    172.16.1.1:80, weight 1
route 10.1.1.1/32              changed          10.1.1.1/32 via 172.16.1.9 → 10.1.1.1/32 via 10.0.0.1
`
	var b bytes.Buffer
	if err := status.Write(&b, r.Sheet(), status.Table); err != nil || b.String() != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, &b, want)
	}
	b.Reset()
	if err := status.Write(&b, Report{}.Sheet(), status.Table); err != nil || b.String() != "no changes\n" {
		t.Errorf("%v, got %q", err, &b)
	}
	// The command decodes what the agent encodes.
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var decoded Report
	if err := json.Unmarshal(text, &decoded); err != nil || !reflect.DeepEqual(decoded.Sheet(), r.Sheet()) && decoded.Connections != r.Connections {
		t.Errorf("%v, decoded %+v", err, decoded)
	}
}
