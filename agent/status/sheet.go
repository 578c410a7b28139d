package status

// Sheet is a View of something outside a Status: a value for JSON and YAML, and lines
// followed by a table.
type Sheet struct {
	Value any
	Lines []string
	// Head and Rows form the table; without Head, no table is printed.
	Head []string
	Rows [][]string
}

// MarshalJSON encodes only the value.
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
