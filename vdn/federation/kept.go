package federation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/fairlead/fairlead/vdn"
)

// readKept reads what peers said last; nothing where there is no file. One that
// is broken is no reason not to start: peers will say it again.
func readKept(file string) (map[string]vdn.PeerView, error) {
	views := map[string]vdn.PeerView{}
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return views, nil
	case err != nil:
		return nil, fmt.Errorf("federation: what peers said last: %w", err)
	}
	if json.Unmarshal(text, &views) != nil {
		return map[string]vdn.PeerView{}, nil
	}
	for name, v := range views {
		v.Connected, v.Error = false, "not reached since the start"
		views[name] = v
	}
	return views, nil
}

// writeKept writes it anew, whole or not at all.
func writeKept(file string, views map[string]vdn.PeerView) error {
	text, err := json.Marshal(views)
	if err != nil {
		return err
	}
	fresh := file + ".new"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}
