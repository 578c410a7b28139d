package journal

import (
	"bytes"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/event"
)

func TestSheet(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	list := []event.Event{{
		Time: at, Last: at.Add(time.Minute), Count: 2, Type: event.BackendUnhealthy, Severity: event.Warning, Object: event.Object{Kind: "Backend", Name: "10.0.0.1"},
		Field: "tcp port 80", From: "up", To: "down", Cause: "connection refused", Services: []string{"shop/api", "shop/web"},
	}, {Time: at, Last: at, Count: 1, Type: event.DrainEnded, Severity: event.Normal, Object: event.Object{Kind: "Node", Name: "n1"}, To: "serving"}}
	for wide, want := range map[bool]string{
		false: `TIME                      TYPE              OBJECT                        CHANGE      COUNT  CAUSE
2026-01-02T03:05:05.006Z  BackendUnhealthy  Backend 10.0.0.1 tcp port 80  up -> down  2      connection refused
2026-01-02T03:04:05.006Z  DrainEnded        Node n1                       serving     1
`,
		true: `TIME                      FIRST                     SEVERITY  TYPE              OBJECT            FIELD        SERVICES           CHANGE      COUNT  CAUSE
2026-01-02T03:05:05.006Z  2026-01-02T03:04:05.006Z  Warning   BackendUnhealthy  Backend 10.0.0.1  tcp port 80  shop/api,shop/web  up -> down  2      connection refused
2026-01-02T03:04:05.006Z  2026-01-02T03:04:05.006Z  Normal    DrainEnded        Node n1           -            -                  serving     1
`,
	} {
		var b bytes.Buffer
		if err := status.Write(&b, Sheet(list, wide), status.Table); err != nil || b.String() != want {
			t.Errorf("wide %v: %v\n%s\nwant\n%s", wide, err, &b, want)
		}
	}
}
