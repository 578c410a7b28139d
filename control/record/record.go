// Package record keeps for which Service each Key is programmed in a file that
// outlives the agent. It decides nothing.
package record

import (
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/internal/statedir"
	"github.com/fairlead/fairlead/service"
)

// version is that of the file's form.
const version = 1

// name is the file's.
const name = "frontends"

// Claims implements control.Claims.
type Claims struct {
	files statedir.Files
	log   *slog.Logger
}

// New gives the record in a folder; without one it is forgotten with the agent.
func New(dir *statedir.Dir, log *slog.Logger) Claims {
	return Claims{dir.Files("owners", version), log}
}

// claim is one Key's.
type claim struct {
	Key     service.Key `json:"key"`
	Service service.ID  `json:"service"`
}

// Load gives what is recorded. A file that cannot be read counts as none, since what
// the data plane holds says the same for all that is programmed.
func (c Claims) Load() map[service.Key]service.ID {
	var all []claim
	if err := c.files.Read(name, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("the record of which Service has which address is ignored", "error", err)
		return nil
	}
	owners := make(map[service.Key]service.ID, len(all))
	for _, one := range all {
		owners[one.Key] = one.Service
	}
	return owners
}

// Store records owners, soon.
func (c Claims) Store(owners map[service.Key]service.ID) {
	all := make([]claim, 0, len(owners))
	for _, k := range slices.SortedFunc(maps.Keys(owners), service.Key.Compare) {
		all = append(all, claim{k, owners[k]})
	}
	c.files.Write(name, all)
}
