package packetfuzz

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/internal/wholefile"
)

// Stats add up over all runs of a target that are meant to be one.
type Stats struct {
	Target  string            `json:"target"`
	Packets uint64            `json:"packets"`
	Cases   uint64            `json:"cases"`
	Worlds  uint64            `json:"worlds"`
	Hooks   map[string]uint64 `json:"packetsByHook"`
	// Outcomes are counted by the target's own names.
	Outcomes map[string]uint64 `json:"outcomes"`
	// Blocks are basic blocks of the programs that have run, of so many.
	Blocks    int           `json:"blocks"`
	AllBlocks int           `json:"allBlocks"`
	Features  int           `json:"features"`
	Corpus    int           `json:"corpus"`
	Elapsed   time.Duration `json:"elapsedNanoseconds"`
	// Processor is the time of the thread that searched.
	Processor time.Duration `json:"processorNanoseconds"`
	// Commits are the packets that each version of the programs had.
	Commits map[string]uint64 `json:"packetsByCommit"`
	// NextWorld is where a run that is resumed goes on.
	NextWorld  uint64   `json:"nextWorld"`
	Violations []string `json:"violations"`
}

// NewStats gives those of a target that has not run yet.
func NewStats(target string) *Stats {
	return &Stats{Target: target, Hooks: map[string]uint64{}, Outcomes: map[string]uint64{}, Commits: map[string]uint64{}, Violations: []string{}}
}

// LoadStats reads what Save has written; new ones where there is no such file.
func LoadStats(path, target string) (*Stats, error) {
	s := NewStats(target)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	return s, json.Unmarshal(text, s)
}

// Save replaces a file in one step.
func (s *Stats) Save(path string) error {
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return wholefile.Write(path, 0o644, bytes.NewReader(append(text, '\n')))
}
