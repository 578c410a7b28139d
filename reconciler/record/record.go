// Package record stores in a file, across restarts of the agent, for which Service each
// Key is programmed.
package record

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/statedir"
)

// version is the version of the file format.
const version = 1

// name is the name of the file.
const name = "frontends"

// Claims implements reconciler.Claims.
type Claims struct {
	files statedir.Files
	log   *slog.Logger
}

// New returns the record in a directory. Without a directory, the record is lost when the
// agent stops.
func New(dir *statedir.Dir, log *slog.Logger) Claims {
	return Claims{dir.Files("owners", version), log}
}

// owners are encoded in a stable order.
type owners map[service.Key]service.ID

// claim is the entry of one Key.
type claim struct {
	Key     service.Key `json:"key"`
	Service service.ID  `json:"service"`
}

// MarshalJSON encodes owners as a list.
func (o owners) MarshalJSON() ([]byte, error) {
	all := make([]claim, 0, len(o))
	for _, k := range slices.SortedFunc(maps.Keys(o), service.Key.Compare) {
		all = append(all, claim{k, o[k]})
	}
	return json.Marshal(all)
}

// UnmarshalJSON decodes what MarshalJSON encodes.
func (o *owners) UnmarshalJSON(text []byte) error {
	var all []claim
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	*o = make(owners, len(all))
	for _, one := range all {
		(*o)[one.Key] = one.Service
	}
	return nil
}

// Load returns the recorded owners. An unreadable file counts as empty, because the data
// plane's state implies the same for everything that is programmed.
func (c Claims) Load() map[service.Key]service.ID {
	var all owners
	if err := c.files.Read(name, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("ignoring the record of programmed addresses", "error", err)
		return nil
	}
	return all
}

// Store records owners asynchronously. The map must not be modified afterwards.
func (c Claims) Store(now map[service.Key]service.ID) { c.files.Write(name, owners(now)) }
