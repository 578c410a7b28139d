package packetfuzz

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/internal/atomicfile"
)

// Stats accumulate over several runs of a target that belong together.
type Stats struct {
	Target  string            `json:"target"`
	Packets uint64            `json:"packets"`
	Cases   uint64            `json:"cases"`
	Worlds  uint64            `json:"worlds"`
	Hooks   map[string]uint64 `json:"packetsByHook"`
	// Outcomes are counted by the target's own names.
	Outcomes map[string]uint64 `json:"outcomes"`
	// Blocks is the number of basic blocks of the programs that have run, AllBlocks that
	// of all blocks.
	Blocks    int           `json:"blocks"`
	AllBlocks int           `json:"allBlocks"`
	Features  int           `json:"features"`
	Corpus    int           `json:"corpus"`
	Elapsed   time.Duration `json:"elapsedNanoseconds"`
	// Processor is the CPU time of the search thread.
	Processor time.Duration `json:"processorNanoseconds"`
	// Commits are the numbers of packets for each version of the programs.
	Commits map[string]uint64 `json:"packetsByCommit"`
	// NextWorld is where a resumed run continues.
	NextWorld  uint64   `json:"nextWorld"`
	Violations []string `json:"violations"`
}

// NewStats returns the stats of a target that has not run yet.
func NewStats(target string) *Stats {
	return &Stats{Target: target, Hooks: map[string]uint64{}, Outcomes: map[string]uint64{}, Commits: map[string]uint64{}, Violations: []string{}}
}

// LoadStats reads a file written by Save; without such a file it returns new stats.
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

// Save replaces a file atomically.
func (s *Stats) Save(path string) error {
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, 0o644, bytes.NewReader(append(text, '\n')))
}
