package drain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/quarantine"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/atomicfile"
	"github.com/fairlead/fairlead/source/crd"
)

// runBackend drains a backend, or ends that, by a manifest in the agent's folder.
func (d *Command) runBackend(cmd *cobra.Command, drain bool) error {
	q, err := crd.NewQuarantine(d.backend, d.service)
	if err != nil {
		return config.Invalid(err)
	}
	s, err := d.Fetch(cmd.Context())
	if err != nil {
		return err
	}
	if s.ManifestDir == "" {
		return errors.New("the agent follows a cluster: use kubectl fairlead drain --backend (undrain --backend), which applies to all nodes")
	}
	file := filepath.Join(s.ManifestDir, "quarantine-"+q.Name+".yaml")
	if !drain {
		return d.undrainBackend(cmd, s, q, file)
	}
	if err := quarantine.Check(&q, usesOf(s), d.force); err != nil {
		return err
	}
	q.Reason, q.By, q.Since = d.reason, quarantine.Operator(), time.Now()
	text, err := crd.QuarantineManifest(q)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(file, 0o644, bytes.NewReader(text)); err != nil {
		return err
	}
	if _, err := d.awaitBackend(cmd.Context(), q, func(by string) bool { return by != "" }); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s gets no new flows from this load balancer: put %s on the others, too\n", d.backend, file)
	return nil
}

// undrainBackend removes the manifest.
func (d *Command) undrainBackend(cmd *cobra.Command, s status.Status, q service.Quarantine, file string) error {
	err := os.Remove(file)
	if errors.Is(err, fs.ErrNotExist) {
		if name := drainedBy(s, q); name != "" {
			return fmt.Errorf("%s is drained by the Quarantine %s: pass the same --backend and --service as to drain, or remove it from its manifest", d.backend, name)
		}
		return fmt.Errorf("%s is not drained: %s does not exist", d.backend, file)
	}
	if err != nil {
		return err
	}
	by, err := d.awaitBackend(cmd.Context(), q, func(by string) bool { return by != q.Name })
	if err != nil {
		return err
	}
	if by != "" {
		return fmt.Errorf("%s is still drained, by the Quarantine %s", d.backend, by)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s takes new flows from this load balancer again: remove %s on the others, too\n", d.backend, filepath.Base(file))
	return nil
}

// applied is how long an agent may take to apply a manifest, unless --wait is longer.
const applied = 10 * time.Second

// awaitBackend waits until the order that drains the backend, or "", is as expected.
func (d *Command) awaitBackend(ctx context.Context, q service.Quarantine, expected func(by string) bool) (by string, err error) {
	patience := max(d.wait, applied)
	s, inTime, err := d.poll(ctx, selection.Selection{Backends: []string{q.Addr.String()}}, patience, func(s status.Status) bool { return expected(drainedBy(s, q)) })
	if err == nil && !inTime {
		err = fmt.Errorf("the agent has not applied it within %s: see fairlead status", patience)
	}
	return drainedBy(s, q), err
}

// usesOf returns all backends of a load balancer.
func usesOf(s status.Status) (all []quarantine.Use) {
	for _, svc := range s.Services {
		var id service.ID
		_ = id.UnmarshalText([]byte(svc.ID)) // as MarshalText has written it
		for _, f := range svc.Frontends {
			for _, b := range f.Backends {
				all = append(all, quarantine.Use{Service: id, Frontend: f.Key(), Backend: service.Backend{Addr: b.Address, Name: b.Name},
					Takes: b.Weight > 0 && b.Passes()})
			}
		}
	}
	return all
}

// drainedBy returns the name of the order by which the backend of q is drained, or "".
func drainedBy(s status.Status, q service.Quarantine) string {
	for _, svc := range s.Services {
		for _, f := range svc.Frontends {
			for _, b := range f.Backends {
				if b.Quarantine != nil && b.Address.Addr() == q.Addr && (q.Port == 0 || b.Address.Port() == q.Port) {
					return b.Quarantine.Name
				}
			}
		}
	}
	return ""
}
