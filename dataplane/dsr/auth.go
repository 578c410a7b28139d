package dsr

import (
	"errors"

	"github.com/fairlead/fairlead/dataplane/auth"
	"github.com/fairlead/fairlead/internal/nodekey"
)

// SetKeys replaces the keys of authentication tags while packets flow. The half must have
// been opened with keys.
func (h *Half) SetKeys(keys nodekey.Keys) error {
	if len(h.cfg.Auth.Keys) == 0 {
		return errors.New("server half: it was opened without node keys: open it again with them")
	}
	return h.worker.Do(func() error { return auth.Writer{Sets: h.obj.AuthKeySets, At: h.obj.AuthKeysAt}.Set(keys) })
}
