// Package requests reads traces: files with the requests that clients send.
//
// What does not belong here: which load has a trace (scenario), and how it is replayed
// (traffic).
package requests

import (
	"github.com/fairlead/fairlead/lab/sim/scenario/reading"
	"strconv"
	"strings"
)

// Asked is a request, or a connection, of a trace.
type Asked struct {
	At     float64 // seconds after the load's start
	Client int     // 0, 1, … in the order of appearance; excess ones share the load's clients
	Size   int     // of the reply, in bytes; 0: the load's default
}

// mostAsked limits the size of a trace.
const mostAsked = 2_000_000

// traceReader reads a trace: one line per request, with its time in seconds, its client
// and the number of bytes requested, separated by commas or blanks.
type traceReader struct {
	reading.Reader
	clients map[string]int
	asked   []Asked
}

// Read reads the text of a trace file.
func Read(file, text string) ([]Asked, reading.Problems) {
	t := traceReader{Reader: reading.Reader{File: file}, clients: map[string]int{}}
	t.read(text)
	return t.asked, t.Problems
}

var traceColumns = []string{"time", "client", "bytes"}

func (t *traceReader) read(text string) {
	line, first := 0, true
	for row := range strings.Lines(text) {
		line++
		row, _, _ = strings.Cut(row, "#")
		if strings.TrimSpace(row) == "" {
			continue
		}
		columns := strings.FieldsFunc(row, func(c rune) bool { return strings.ContainsRune(" \t\r\n", c) })
		if strings.Contains(row, ",") {
			columns = strings.Split(row, ",")
			for i := range columns {
				columns[i] = strings.TrimSpace(columns[i])
			}
		}
		head := first && strings.EqualFold(columns[0], traceColumns[0])
		first = false
		switch {
		case head && !strings.EqualFold(strings.Join(columns, ","), strings.Join(traceColumns, ",")) || len(columns) != len(traceColumns):
			t.Refuse(line, "", "want three columns, %s; got %d: %s", strings.Join(traceColumns, ", "), len(columns), strings.TrimSpace(row))
		case !head:
			t.request(line, columns)
		}
		if len(t.asked) > mostAsked {
			t.Refuse(line, "", "more than %d requests", mostAsked)
		}
		if len(t.Problems) >= reading.MostProblems || len(t.asked) > mostAsked {
			return
		}
	}
}

func (t *traceReader) request(line int, columns []string) {
	at, ok := reading.Quantity(columns[0], reading.Plain)
	size, err := strconv.Atoi(columns[2])
	switch {
	case !ok || at < 0 || at > reading.MostSeconds:
		t.Refuse(line, traceColumns[0], "want seconds from 0 to %d, got %q", reading.MostSeconds, columns[0])
	case len(t.asked) > 0 && at < t.asked[len(t.asked)-1].At:
		t.Refuse(line, traceColumns[0], "%s is before the line before it: want them in the order of time", columns[0])
	case columns[1] == "":
		t.Refuse(line, traceColumns[1], "is missing: want a name or a number")
	case err != nil || size < 0 || size > reading.MostBytes:
		t.Refuse(line, traceColumns[2], "want whole bytes from 0 to %d, got %q", int(reading.MostBytes), columns[2])
	default:
		client, known := t.clients[columns[1]]
		if !known {
			client = len(t.clients)
			t.clients[columns[1]] = client
		}
		t.asked = append(t.asked, Asked{at, client, size})
	}
}
