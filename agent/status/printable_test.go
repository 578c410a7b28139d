package status

import (
	"bytes"
	"testing"
)

// TestTablesMoveNoCursor checks that tables contain no control characters: names may come
// from other domains.
func TestTablesMoveNoCursor(t *testing.T) {
	var b bytes.Buffer
	s := Sheet{Head: []string{"NETWORK", "WHY NOT"}, Rows: [][]string{{"a\x1b[2Jb", "ö \a"}}, Lines: []string{"note: \x1b]0;x"}}
	if err := Write(&b, s, Table); err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsAny(b.Bytes(), "\x1b\a") || !bytes.Contains(b.Bytes(), []byte("a\uFFFD[2Jb")) || !bytes.Contains(b.Bytes(), []byte("ö")) {
		t.Errorf("got %q", &b)
	}
}
