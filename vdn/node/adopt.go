package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
)

// Adoption is an attachment that the node continues by itself: its pod was restarted with
// its lease while no controller was reachable. The daemon enforces it in addition to the
// plan, and informs a controller as soon as one responds.
type Adoption struct {
	Attachment vdn.Attachment `json:"attachment"`
	// Replaces are the previous IDs of the lease, newest first.
	Replaces []string `json:"replaces"`
	// reported is true once a controller knows it. Another request after the pod's deletion
	// would create another lease.
	reported bool
}

// mostAdoption limits the size of an Adoption, in bytes.
const mostAdoption = 1 << 16

// answerAdopt handles PUT /attachments.
func (d *Daemon) answerAdopt(w http.ResponseWriter, r *http.Request) {
	var text bytes.Buffer
	var a Adoption
	_, err := text.ReadFrom(http.MaxBytesReader(w, r.Body, mostAdoption))
	if err == nil {
		err = vdn.Decode(text.Bytes(), &a)
	}
	if err == nil {
		err = a.request().Validate()
	}
	if err == nil && !filepath.IsAbs(a.Attachment.NetNS) {
		err = fmt.Errorf("attachment %s, netns: %q is not the absolute path of a network namespace", a.Attachment.ID, a.Attachment.NetNS)
	}
	if err != nil {
		respond(w, http.StatusBadRequest, "error", err.Error())
		return
	}
	if err := d.adopt(a); err != nil {
		respond(w, http.StatusServiceUnavailable, "error", err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// request returns the request to the controller.
func (a Adoption) request() vdn.AttachmentRequest { return a.Attachment.Continue(a.Replaces) }

// adopt stores an adoption, so that it survives a restart, and has it enforced.
func (d *Daemon) adopt(a Adoption) error {
	d.mu.Lock()
	next := maps.Clone(d.adopted)
	for _, id := range a.Replaces {
		delete(next, id)
	}
	next[a.Attachment.ID] = a
	err := d.saveAdopted(next)
	if err == nil {
		d.adopted = next
	}
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("failed to store attachment %s: %w", a.Attachment.ID, err)
	}
	d.log.Info("vdn node: a pod continues its lease without a controller", "attachment", a.Attachment.ID, "owner", a.Attachment.Owner, "replaces", a.Replaces)
	d.again()
	return nil
}

// adoptedFile is next to the cached plan; empty if there is no cache.
func (d *Daemon) adoptedFile() string {
	if d.cfg.Kept == "" {
		return ""
	}
	return strings.TrimSuffix(d.cfg.Kept, filepath.Ext(d.cfg.Kept)) + "-adopted.json"
}

// saveAdopted stores all adoptions on disk. The caller holds the lock.
func (d *Daemon) saveAdopted(all map[string]Adoption) error { return writeJSON(d.adoptedFile(), all) }

// restoreAdopted reads what a previous process stored.
func (d *Daemon) restoreAdopted() error {
	d.adopted = map[string]Adoption{}
	text, err := os.ReadFile(d.adoptedFile())
	if errors.Is(err, fs.ErrNotExist) { // also if the name is empty
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &d.adopted)
	}
	if err != nil {
		d.adopted = map[string]Adoption{}
		return fmt.Errorf("%s: %w", d.adoptedFile(), err)
	}
	return nil
}

// effective returns the newest plan with the adoptions, and the plan without them, which is
// the one to cache; nil before the first plan. Adoptions that a controller knows, or whose
// pod is gone, are dropped.
func (d *Daemon) effective() (whole, base *vdn.Plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.plan == nil || len(d.adopted) == 0 {
		return d.plan, d.plan
	}
	p, left := *d.plan, maps.Clone(d.adopted)
	p.Local = slices.Clone(p.Local)
	for id, a := range d.adopted {
		_, err := os.Stat(a.Attachment.NetNS)
		known := slices.ContainsFunc(p.Local, func(l vdn.Attachment) bool { return l.ID == id && l.NetNS != "" })
		if known || errors.Is(err, fs.ErrNotExist) {
			delete(left, id)
			continue
		}
		p.Local = slices.DeleteFunc(p.Local, func(l vdn.Attachment) bool { return l.ID == id || slices.Contains(a.Replaces, l.ID) })
		p.Local = append(p.Local, a.Attachment)
	}
	if len(left) < len(d.adopted) {
		d.adopted = left
		if err := d.saveAdopted(left); err != nil {
			d.log.Warn("vdn node: failed to store continued leases", "error", err)
		}
	}
	return &p, d.plan
}

// handOver reports all adoptions to a controller.
func (d *Daemon) handOver(ctx context.Context) {
	d.mu.Lock()
	all := maps.Clone(d.adopted)
	d.mu.Unlock()
	for id, a := range all {
		if _, err := os.Stat(a.Attachment.NetNS); a.reported || errors.Is(err, fs.ErrNotExist) {
			continue // a deleted pod's lease will be released
		}
		_, err := d.cfg.Controller.Attach(ctx, a.request())
		if err == nil {
			_, err = d.cfg.Controller.Up(ctx, id, vdn.UpReport{Device: a.Attachment.Device, MAC: a.Attachment.MAC, NetNS: a.Attachment.NetNS})
		}
		switch {
		case err == nil:
			d.log.Info("vdn node: a controller accepted an attachment that was continued without one", "attachment", id)
			d.mu.Lock()
			if now, still := d.adopted[id]; still {
				now.reported = true
				d.adopted[id] = now
			}
			d.mu.Unlock()
		case !client.IsUnavailable(err):
			d.log.Error("vdn node: an attachment that was continued without a controller was rejected: delete its pod", "attachment", id, "owner", a.Attachment.Owner, "error", err)
		}
	}
}
