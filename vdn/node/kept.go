package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/internal/wholefile"
	"github.com/fairlead/fairlead/vdn"
)

// save keeps a plan on disk: whole, or not at all.
func (d *Daemon) save(p vdn.Plan) error {
	if d.cfg.Kept == "" {
		return nil
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(d.cfg.Kept), 0o700); err != nil {
		return err
	}
	return wholefile.Write(d.cfg.Kept, 0o600, bytes.NewReader(text))
}

// restore gives what was kept; nil where nothing was.
func (d *Daemon) restore() (*vdn.Plan, error) {
	text, err := os.ReadFile(d.cfg.Kept)
	if errors.Is(err, fs.ErrNotExist) { // also of no name
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var p vdn.Plan
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", d.cfg.Kept, err)
	}
	return &p, nil
}
