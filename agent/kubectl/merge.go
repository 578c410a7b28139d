package kubectl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/status"
)

// command is a command line of fairlead, changed so that results can be merged.
type command struct {
	args    []string // what the pods run
	format  status.Format
	output  status.Output
	watch   time.Duration // 0 for once
	streams bool          // follows events: results are merged by line
	judges  bool          // begins with the verdict
}

// tabular are the commands whose results are tables that can be merged.
var tabular = []string{"status", "get", "explain", "drops"}

// parse reads what matters here of a command line; the pods' binary checks the rest.
func parse(args []string) command {
	c := command{format: status.Table}
	c.judges = len(args) > 0 && args[0] == "status" && !slices.Contains(args, "--ready")
	mergeable := len(args) > 0 && slices.Contains(tabular, args[0])
	events := len(args) > 1 && args[0] == "get" && strings.HasPrefix(args[1], "event")
	for i := 0; i < len(args); i++ {
		name, value, has := strings.Cut(args[i], "=")
		switch {
		case name == "-o" || name == "--output":
			if !has && i+1 < len(args) {
				i++
				value = args[i]
			}
			c.format = status.Format(value)
			continue
		case strings.HasPrefix(name, "-o") && !strings.HasPrefix(name, "--"):
			c.format = status.Format(strings.TrimPrefix(args[i], "-o"))
			continue
		case name == "--no-headers" && value != "false":
			c.output.NoHeaders = true
			continue
		case name == "-f" || name == "--follow":
			c.streams = true
		case events && (name == "-w" || name == "--watch"):
			c.streams = true
		case mergeable && (name == "-w" || name == "--watch"):
			c.watch = time.Second
			if d, err := time.ParseDuration(value); has && err == nil && d > 0 {
				c.watch = d
			}
			continue
		}
		c.args = append(c.args, args[i])
	}
	if !mergeable {
		c.streams = true
		return c
	}
	sections := map[status.Format]status.Format{status.Table: status.Sections, status.Wide: status.SectionsWide}
	c.args = append(c.args, "-o", string(cmp.Or(sections[c.format], c.format)))
	return c
}

// merge prints the results of nodes as one. A node whose result is unreadable has failed,
// and its error is returned by the command that ran it.
func (c command) merge(out io.Writer, nodes []string, answers []bytes.Buffer) error {
	switch c.format {
	case status.Table, status.Wide:
		return status.PrintSections(out, mergeSections(nodes, answers), c.output)
	case status.JSON:
		object := map[string]json.RawMessage{}
		for i, node := range nodes {
			if b := answers[i].Bytes(); json.Valid(b) {
				object[node] = b
			}
		}
		return status.Write(out, status.Sheet{Value: object}, status.JSON)
	}
	for i, node := range nodes {
		if answers[i].Len() == 0 {
			continue
		}
		if _, err := fmt.Fprintf(out, "--- # node %s\n%s", node, answers[i].Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// mergeSections joins tables with the same columns, with the node in front of each row.
// Lines stay together by node.
func mergeSections(nodes []string, answers []bytes.Buffer) []status.Section {
	var lines []string
	var tables []status.Section
	for i, node := range nodes {
		var sections []status.Section
		if json.Unmarshal(answers[i].Bytes(), &sections) != nil {
			continue
		}
		for _, s := range sections {
			for _, l := range s.Lines {
				if l != "" {
					lines = append(lines, node+": "+l)
				}
			}
			tables = addTable(tables, node, s)
		}
	}
	if len(lines) == 0 {
		return tables
	}
	return slices.Insert(tables, 0, status.Section{Lines: lines})
}

func addTable(merged []status.Section, node string, s status.Section) []status.Section {
	if len(s.Head) == 0 {
		return merged
	}
	head := append([]string{"NODE"}, renamed(s.Head)...)
	at := slices.IndexFunc(merged, func(m status.Section) bool { return slices.Equal(m.Head, head) })
	if at < 0 {
		at = len(merged)
		merged = append(merged, status.Section{Head: head})
	}
	for _, row := range s.Rows {
		merged[at].Rows = append(merged[at].Rows, append([]string{node}, row...))
	}
	return merged
}

// renamed keeps the column NODE of a backend apart from that of the agent.
func renamed(head []string) []string {
	head = slices.Clone(head)
	for i, h := range head {
		if h == "NODE" {
			head[i] = "BACKEND NODE"
		}
	}
	return head
}
