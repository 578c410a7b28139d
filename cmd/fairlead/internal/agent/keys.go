package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/nodekey"
	"github.com/fairlead/fairlead/internal/sleep"
)

// keyPause is the interval at which the key file is read. Kubernetes itself takes a
// minute to update a file of a Secret.
const keyPause = 2 * time.Second

// nodeKeys holds the keys for packets between nodes, as read from their file.
type nodeKeys struct {
	file  string
	set   []func(nodekey.Keys) error // for components that add or verify tags
	cause error                      // why packets to backend nodes have no tags

	mu   sync.Mutex
	auth nodekey.Auth
	err  error // of the last read of the file
}

// newKeys returns the keys of an agent's data plane and DSR agent, or nil without a file.
func (a *agent) newKeys() *nodeKeys {
	if len(a.config.NodeAuth.Keys) == 0 {
		return nil
	}
	k := &nodeKeys{file: a.config.NodeKeyFile, auth: a.config.NodeAuth}
	switch {
	case a.xdp != nil:
		k.set = append(k.set, a.xdp.SetKeys)
	case a.plane != nil:
		k.cause = errors.New("IPVS forwards and cannot put a tag into packets: nodes with --require-node-key drop them")
	}
	if a.dsr != nil {
		k.set = append(k.set, a.dsr.SetKeys)
	}
	slog.Info("packets between nodes are authenticated", "keys", k.auth.Keys, "required", k.auth.Require)
	return k
}

// follow applies changes of the file until ctx is canceled. An unreadable file changes
// nothing.
func (k *nodeKeys) follow(ctx context.Context) {
	if k == nil {
		return
	}
	for sleep.For(ctx, keyPause) {
		k.look()
	}
}

// look reads the file once.
func (k *nodeKeys) look() {
	keys, err := nodekey.Read(k.file)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && !slices.Equal(keys, k.auth.Keys) {
		for _, set := range k.set {
			err = errors.Join(err, set(keys))
		}
		if err == nil {
			k.auth.Keys = keys
			slog.Info("node keys changed", "keys", keys)
		}
	}
	if err != nil && (k.err == nil || k.err.Error() != err.Error()) {
		slog.Error("failed to reload the node keys, the previous keys stay in use", "error", err)
	}
	k.err = err
}

// state returns what the status shows, which never includes a key.
func (k *nodeKeys) state() (status.NodeKeys, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := status.NodeKeys{Sends: k.auth.Keys[0].String(), Required: k.auth.Require}
	for _, key := range k.auth.Keys {
		s.Accepts = append(s.Accepts, key.String())
	}
	return s, errors.Join(k.cause, k.err)
}
