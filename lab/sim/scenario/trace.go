package scenario

import (
	"cmp"
	"path"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/lab/sim"
)

// Files returns the content of a file that a scenario refers to, with a path relative to
// the scenario's folder.
type Files func(name string) ([]byte, error)

// Asked is a request, or a connection, of a trace.
type Asked struct {
	At     float64 // seconds after the load's start
	Client int     // 0, 1, … in the order of appearance; excess ones share the load's clients
	Size   int     // of the reply, in bytes; 0: the load's default
}

// mostAsked limits the size of a trace.
const mostAsked = 2_000_000

// trace reads the trace file of a load.
func (r *reader) trace(into *[]Asked) field {
	return func(n *yaml.Node, at string) {
		name, ok := r.scalar(n, at, "a file's name")
		if !ok {
			return
		}
		if r.files == nil {
			r.refuse(n.Line, at, "trace files are not supported here")
			return
		}
		text, err := r.files(name)
		if err != nil {
			r.refuse(n.Line, at, "%v", err)
			return
		}
		file := name
		if !path.IsAbs(name) {
			file = path.Join(path.Dir(r.file), name)
		}
		t := traceReader{reader: &reader{file: file}, clients: map[string]int{}}
		t.read(string(text))
		r.problems = append(r.problems, t.problems...)
		if *into = t.asked; len(t.asked) == 0 && len(t.problems) == 0 {
			r.refuse(n.Line, at, "%s contains no requests", name)
		}
	}
}

// traceReader reads a trace: one line per request, with its time in seconds, its client
// and the number of bytes requested, separated by commas or blanks.
type traceReader struct {
	*reader
	clients map[string]int
	asked   []Asked
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
			t.refuse(line, "", "want three columns, %s; got %d: %s", strings.Join(traceColumns, ", "), len(columns), strings.TrimSpace(row))
		case !head:
			t.request(line, columns)
		}
		if len(t.asked) > mostAsked {
			t.refuse(line, "", "more than %d requests", mostAsked)
		}
		if len(t.problems) >= mostProblems || len(t.asked) > mostAsked {
			return
		}
	}
}

func (t *traceReader) request(line int, columns []string) {
	at, ok := parse(columns[0], plain)
	size, err := strconv.Atoi(columns[2])
	switch {
	case !ok || at < 0 || at > mostSeconds:
		t.refuse(line, traceColumns[0], "want seconds from 0 to %d, got %q", mostSeconds, columns[0])
	case len(t.asked) > 0 && at < t.asked[len(t.asked)-1].At:
		t.refuse(line, traceColumns[0], "%s is before the line before it: want them in the order of time", columns[0])
	case columns[1] == "":
		t.refuse(line, traceColumns[1], "is missing: want a name or a number")
	case err != nil || size < 0 || size > mostBytes:
		t.refuse(line, traceColumns[2], "want whole bytes from 0 to %d, got %q", int(mostBytes), columns[2])
	default:
		client, known := t.clients[columns[1]]
		if !known {
			client = len(t.clients)
			t.clients[columns[1]] = client
		}
		t.asked = append(t.asked, Asked{at, client, size})
	}
}

// sooner orders problems: those of the scenario first, and those of each file by line.
func (r *reader) sooner(a, b Problem) int {
	rank := func(p Problem) int {
		if p.File == r.file {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
}

// replay divides a trace among clients. A client that represents several of the trace's
// clients has a flow for each of them.
func (l *Load) replay(clients int, size sim.Draw, random *sim.Stream) [][]sim.Record {
	all := make([][]sim.Record, clients)
	for _, a := range l.Trace {
		if l.Start+a.At >= l.End {
			break
		}
		if a.Size == 0 {
			a.Size = int(size(random))
		}
		i := a.Client % clients
		all[i] = append(all[i], sim.Record{At: a.At, Size: a.Size, Flow: a.Client / clients})
	}
	return all
}
