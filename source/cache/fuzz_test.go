package cache

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/source"
)

// FuzzFile reads arbitrary content as a cache file: it is rejected, or all of its Services
// are valid.
func FuzzFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "kept")
	if err := stateOf(source.Snapshot{Services: []*service.Service{web("web")}}, nil).writeAt(path, time.Now()); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add([]byte(`{"version":1,"services":[null]}`))
	f.Add([]byte(`{"version":1,"services":[{}],"peers":[{}],"announced":[{"offers":[{}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		path := filepath.Join(t.TempDir(), "kept")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := (&Source{Config: Config{File: path, Limit: time.Hour}}).read()
		if err != nil {
			return
		}
		for _, one := range st.Services {
			if wrong := one.Validate(); len(wrong) > 0 {
				t.Errorf("%s is kept: %v", one.ID, wrong)
			}
		}
	})
}
