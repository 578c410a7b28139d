package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/nodekey"
)

// TestKeysFollowTheirFile changes the file, makes it unreadable and restores it: on any
// error, the previous keys stay in force.
func TestKeysFollowTheirFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	one, two := strings.Repeat("1", 32), strings.Repeat("2", 40)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(one)
	keys, err := nodekey.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	var set []nodekey.Keys
	var fails error
	k := &nodeKeys{file: file, auth: nodekey.Auth{Keys: keys, Require: true}, set: []func(nodekey.Keys) error{func(keys nodekey.Keys) error {
		if fails == nil {
			set = append(set, keys)
		}
		return fails
	}}}
	look := func(when string, changes, accepted int, wrong string) {
		t.Helper()
		k.look()
		s, err := k.state()
		if len(set) != changes || len(s.Accepts) != accepted || s.Sends != s.Accepts[0] || !s.Required {
			t.Errorf("%s: %d changes, %+v; want %d changes and %d keys", when, len(set), s, changes, accepted)
		}
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %q", when, err, wrong)
		}
		if err != nil && (strings.Contains(err.Error(), one) || strings.Contains(err.Error(), two)) {
			t.Errorf("%s: the error contains a key", when)
		}
	}
	look("nothing changed", 0, 1, "")
	write(one + "\n" + two)
	look("the next key is accepted", 1, 2, "")
	write(two + "\n" + one)
	look("it is sent", 2, 2, "")
	write(two + "\n" + one[1:])
	look("half a key", 2, 2, "31 characters")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	look("the file is gone", 2, 2, "no such file")
	write(two)
	fails = errors.New("the kernel refuses")
	look("the kernel refuses", 2, 2, "the kernel refuses")
	fails = nil
	look("the former key is forgotten", 3, 1, "")
	if now, err := nodekey.Read(file); err != nil || !slices.Equal(set[2], now) {
		t.Errorf("set %v, the file has %v, %v", set[2], now, err)
	}
	(*nodeKeys)(nil).follow(t.Context()) // an agent without keys
}
