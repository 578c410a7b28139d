package api

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/source/manifest"
)

// DiffRequest are the manifests to compare with what is programmed.
type DiffRequest struct {
	// Files are the texts of manifests by name: all of the folder (Whole), or some.
	Files map[string][]byte `json:"files"`
	Whole bool              `json:"whole"`
	// Flows are flows that other agents track.
	Flows []Flow `json:"flows,omitempty"`
}

// ReadManifests returns the request for files, or for a folder.
func ReadManifests(paths []string) (DiffRequest, error) {
	r := DiffRequest{Files: map[string][]byte{}}
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case info.IsDir() && len(paths) > 1:
			err = fmt.Errorf("%s: a folder stands for all manifests: pass only this folder, or files", path)
		case info.IsDir():
			err = r.addFolder(path)
		default:
			err = r.add(path)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *DiffRequest) addFolder(path string) error {
	r.Whole = true
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !manifest.IsManifest(e.Name()) {
			continue
		}
		if err := r.add(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (r *DiffRequest) add(path string) error {
	name := filepath.Base(path)
	if !manifest.IsManifest(name) {
		return fmt.Errorf("%s: want a name that ends in .yaml, .yml or .json", path)
	}
	if _, twice := r.Files[name]; twice {
		return fmt.Errorf("%s: another file has the same name, which can be in the folder once", path)
	}
	text, err := limit.ReadFile(path, limit.Answer)
	r.Files[name] = text
	return err
}
