package journal

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/event"
)

// Sheet presents events as a table, with all columns if wide.
func Sheet(list []event.Event, wide bool) status.Sheet {
	s := status.Sheet{Value: list}
	if len(list) == 0 {
		s.Lines = []string{"no events"}
		return s
	}
	s.Head = []string{"TIME", "TYPE", "OBJECT", "CHANGE", "COUNT"}
	if wide {
		s.Head = []string{"TIME", "FIRST", "SEVERITY", "TYPE", "OBJECT", "FIELD", "SERVICES", "CHANGE", "COUNT"}
	}
	s.Head = append(s.Head, "CAUSE")
	for _, e := range list {
		object, change := e.Object.String(), e.Change()
		row := []string{stamp(e.Last), string(e.Type), strings.TrimSpace(object + " " + e.Field), change, fmt.Sprint(e.Count)}
		if wide {
			row = []string{stamp(e.Last), stamp(e.Time), string(e.Severity), string(e.Type), object, e.Field, strings.Join(e.Services, ","), change, fmt.Sprint(e.Count)}
		}
		s.Rows = append(s.Rows, append(row, e.Cause))
	}
	return s
}

// stamp formats a time so that events of several nodes can be compared.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
