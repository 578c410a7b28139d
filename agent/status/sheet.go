package status

// Sheet is a View of what is not part of a Status: a value for JSON and YAML,
// and the same as lines and then a table.
type Sheet struct {
	Value any
	Lines []string
	// Head and Rows are the table; no Head, no table.
	Head []string
	Rows [][]string
}

// MarshalJSON shows the value alone.
func (s Sheet) MarshalJSON() ([]byte, error) { return marshal(s.Value) }

func (s Sheet) table(t *table) {
	for _, l := range s.Lines {
		t.line("%s", l)
	}
	if len(s.Head) == 0 {
		return
	}
	t.head(s.Head...)
	for _, r := range s.Rows {
		t.row(r...)
	}
}
