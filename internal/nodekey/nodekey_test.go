package nodekey

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

const (
	one = "8f3c0e7d5a1b49a6b2d4c6e8f0a1b3c5"
	two = "0123456789abcdef0123456789abcdeff"
)

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		keys int
		err  string
	}{
		"one":              {text: one, keys: 1},
		"one with newline": {text: one + "\n", keys: 1},
		"two":              {text: one + "\n\n " + two + " \r\n", keys: 2},
		"none":             {text: "\n \n", err: "no key"},
		"empty":            {text: "", err: "no key"},
		"short":            {text: one + "\n" + one[1:], err: "line 2: 31 characters"},
		"long":             {text: strings.Repeat("a", longest+1), err: "at most 1024"},
		"three":            {text: one + "\n" + two + "\n" + one + "x", err: "line 3: more than 2 keys"},
		"twice":            {text: one + "\n" + one, err: "the same key twice"},
		"same ID":          {text: one + "\n" + sameID(one), err: "the same ID"},
	} {
		keys, err := parse(c.text)
		if len(keys) != c.keys || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v; want %d keys, %q", name, keys, err, c.keys, c.err)
		}
		if err != nil && (strings.Contains(err.Error(), one[:8]) || strings.Contains(err.Error(), two[:8])) {
			t.Errorf("%s: the error contains the key: %v", name, err)
		}
	}
	a, _ := parse(one + "\n" + two)
	b, _ := parse(two + "\n" + one)
	if a[0] != b[1] || a[1] != b[0] || a[0] == a[1] || a[0].K0 == a[0].K1 {
		t.Errorf("keys %#v and %#v", a, b)
	}
}

// sameID returns another line whose key has the same ID.
func sameID(line string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprintf("%032d", i); derive(other).ID == derive(line).ID {
			return other
		}
	}
}

// TestDerive pins the keys that nodes of all releases derive from a line.
func TestDerive(t *testing.T) {
	if k := derive(one); k.K0 != 0x74fffe8108cac4ff || k.K1 != 0x749e5f0d2b441f6e || k.ID != 0xc5 {
		t.Errorf("%#x, %#x, %#x", k.K0, k.K1, k.ID)
	}
}

// TestKeysAreNotShown prints a key in every way that a log or a status uses.
func TestKeysAreNotShown(t *testing.T) {
	k := derive(one)
	auth := Auth{Keys: Keys{k}}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("key", "key", k, "keys", auth)
	text, err := json.Marshal(auth)
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprint(k, auth) + fmt.Sprintf("%v %+v %#v %s %q %d %x %X %#v %+v", k, k, k, k, k, k, k, k, auth, auth) + log.String() + string(text)
	for _, secret := range []uint64{k.K0, k.K1} {
		for _, form := range []string{"%d", "%x", "%X"} {
			if strings.Contains(shown, fmt.Sprintf(form, secret)) {
				t.Errorf("%s shows %x", shown, secret)
			}
		}
	}
	if !strings.Contains(shown, k.String()) {
		t.Errorf("%s does not say the ID %s", shown, k)
	}
}

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if _, err := Read(file); err == nil {
		t.Error("a file that is not there: no error")
	}
	for text, ok := range map[string]bool{one + "\n": true, "": false, one + strings.Repeat(" ", limit.Secret): false} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if keys, err := Read(file); (err == nil) != ok || ok && len(keys) != 1 {
			t.Errorf("%d bytes: %v, %v", len(text), keys, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{one, one + "\n" + two, "", "\x00", strings.Repeat("a\n", 100)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fuzzlimit.Time(t)
		keys, err := parse(text)
		if (err == nil) != (len(keys) > 0) || len(keys) > Most {
			t.Errorf("%d keys, %v", len(keys), err)
		}
		again, _ := parse(text)
		for i := range keys {
			if again[i] != keys[i] {
				t.Error("the same text is another key")
			}
		}
	})
}
