package cni

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/vdn"
)

// notes is the node's record of its attachments, one file each. A note is written before
// anything is created and removed when everything is undone, so that undoing needs neither
// the controller nor the pod's namespace. Notes in owed have only a lease left, whose
// release the unreachable controller has not received.
type notes struct{ dir string }

// note is one attachment.
type note struct {
	ID string `json:"id"`
	// Conf is the name of the configuration, Network that of its network.
	Conf    string `json:"conf"`
	Network string `json:"network"`
	// Controller is the URL of the controller that has the lease.
	Controller string `json:"controller"`
	NetNS      string `json:"netns"`
	// Whole is true once ADD has completed.
	Whole bool `json:"whole,omitempty"`
	// MAC is the address of its macvlan device.
	MAC string `json:"mac,omitempty"`
	// NIC is the node's NIC that was moved to the pod; nil if none was.
	NIC *nic `json:"nic,omitempty"`
	// Lease is the controller's lease, for a restart of the pod while no controller is
	// reachable.
	Lease *vdn.Lease `json:"lease,omitempty"`
	// Replaces are the IDs by which a controller may know the lease, newest first, if it
	// does not know it by this ID yet.
	Replaces []string `json:"replaces,omitempty"`
}

func (n notes) file(state, id string) string { return filepath.Join(n.dir, state, id+".json") }

const (
	attached = "attached"
	owed     = "owed"
)

// write replaces a note atomically; a crash leaves the old note or the new one.
func (n notes) write(state string, one note) error {
	file := n.file(state, one.ID)
	text, err := json.Marshal(one)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		return unwritable(one.ID, err)
	}
	return nil
}

func unwritable(id string, err error) error {
	return fail(types.ErrIOFailure, "note of attachment %s: %v: check that dataDir is writable", id, err)
}

// read returns nil if there is no valid note.
func (n notes) read(state, id string) *note {
	text, err := os.ReadFile(n.file(state, id))
	if err != nil {
		return nil
	}
	one := &note{}
	if json.Unmarshal(text, one) != nil || one.ID != id {
		return nil
	}
	if one.NIC != nil && one.NIC.Boot != bootID() {
		one.NIC = nil // a reboot returns NICs by itself
	}
	return one
}

func (n notes) remove(state, id string) error {
	if err := os.Remove(n.file(state, id)); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return unwritable(id, err)
	}
	return nil
}

// all returns all readable notes.
func (n notes) all(state string) (all []note) {
	entries, _ := os.ReadDir(filepath.Join(n.dir, state)) // none yet
	for _, e := range entries {
		id, isNote := strings.CutSuffix(e.Name(), ".json")
		if !isNote {
			continue
		}
		if one := n.read(state, id); one != nil {
			all = append(all, *one)
		}
	}
	return all
}

func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // constant if the file does not exist
	return strings.TrimSpace(string(id))
}
