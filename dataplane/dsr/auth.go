package dsr

import (
	"errors"

	"github.com/fairlead/fairlead/dataplane/auth"
	"github.com/fairlead/fairlead/internal/nodekey"
)

// SetKeys replaces the keys of authentication tags while packets flow. The agent must have
// been opened with keys.
func (h *Agent) SetKeys(keys nodekey.Keys) error {
	if len(h.cfg.Auth.Keys) == 0 {
		return errors.New("DSR agent: opened without node keys: reopen it with them")
	}
	return h.worker.Do(func() error { return auth.Writer{Sets: h.obj.AuthKeySets, At: h.obj.AuthKeysAt}.Set(keys) })
}
