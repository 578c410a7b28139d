// Package record keeps for which Service each Key is programmed in a file that
// outlives the agent. It decides nothing.
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

// version is that of the file's form.
const version = 1

// name is the file's.
const name = "frontends"

// Claims implements reconciler.Claims.
type Claims struct {
	files statedir.Files
	log   *slog.Logger
}

// New gives the record in a folder; without one it is forgotten with the agent.
func New(dir *statedir.Dir, log *slog.Logger) Claims {
	return Claims{dir.Files("owners", version), log}
}

// owners are written in a steady order.
type owners map[service.Key]service.ID

// claim is one Key's.
type claim struct {
	Key     service.Key `json:"key"`
	Service service.ID  `json:"service"`
}

// MarshalJSON writes owners as a list.
func (o owners) MarshalJSON() ([]byte, error) {
	all := make([]claim, 0, len(o))
	for _, k := range slices.SortedFunc(maps.Keys(o), service.Key.Compare) {
		all = append(all, claim{k, o[k]})
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads what MarshalJSON has written.
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

// Load gives what is recorded. A file that cannot be read counts as none, since what
// the data plane holds says the same for all that is programmed.
func (c Claims) Load() map[service.Key]service.ID {
	var all owners
	if err := c.files.Read(name, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("the record of which Service has which address is ignored", "error", err)
		return nil
	}
	return all
}

// Store records owners, soon; they must not change any more.
func (c Claims) Store(now map[service.Key]service.ID) { c.files.Write(name, owners(now)) }
