package router

import "testing"

// A router without free IDs finds that out at once for each further route: with hundreds of
// thousands of them, searching the range each time takes many minutes.
func TestExhaustedIDsAreNotSearched(t *testing.T) {
	table, k := &Table{c: Config{FirstID: 7}}, &kernel{used: map[uint32]bool{}, lowest: 7}
	for range idRange {
		if _, err := table.take(k); err != nil {
			t.Fatal(err)
		}
	}
	k.lowest = 7 // as after a restart
	if _, err := table.take(k); err == nil || k.lowest != 7+idRange-1 {
		t.Errorf("%v; the next search starts at %d, want %d", err, k.lowest, 7+idRange-1)
	}
	k.release(100)
	if id, err := table.take(k); id != 100 || err != nil {
		t.Errorf("after one is free: %d, %v", id, err)
	}
}
