package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/internal/atomicfile"
	"github.com/fairlead/fairlead/vdn"
)

// save caches a plan on disk.
func (d *Daemon) save(p vdn.Plan) error { return writeJSON(d.cfg.Kept, p) }

// writeJSON writes a value to a file atomically. Without a name it does nothing.
func writeJSON(file string, value any) error {
	if file == "" {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(file, 0o600, bytes.NewReader(text))
}

// restore returns the cached plan, or nil.
func (d *Daemon) restore() (*vdn.Plan, error) {
	text, err := os.ReadFile(d.cfg.Kept)
	if errors.Is(err, fs.ErrNotExist) { // also if the name is empty
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
