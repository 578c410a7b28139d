// Package preview is what fairlead diff asks an agent, and prints. Comparing is up to agent/diff.
package preview

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/diff"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
	"github.com/fairlead/fairlead/internal/limit"
)

// Diff compares manifests with what an agent has programmed.
type Diff struct {
	query.Query
	// Flows are files with flows that other agents track.
	Flows []string
}

// Run prints the differences.
func (d *Diff) Run(cmd *cobra.Command, paths []string) (different bool, err error) {
	request, err := api.ReadManifests(paths)
	if err != nil {
		return false, err
	}
	for _, path := range d.Flows {
		text, err := limit.ReadFile(path, limit.Answer)
		if err != nil {
			return false, err
		}
		var some []api.Flow
		if err := json.Unmarshal(text, &some); err != nil {
			return false, fmt.Errorf("%s: want the output of fairlead get flows -o json: %w", path, err)
		}
		request.Flows = append(request.Flows, some...)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Minute)
	defer cancel()
	got, err := d.Do(ctx, http.MethodPost, api.DiffPath, nil, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	defer got.Close()
	var report diff.Report
	if err := json.NewDecoder(limit.NewReader(got, "the agent's response", limit.Answer)).Decode(&report); err != nil {
		return false, fmt.Errorf("the agent's response is incomplete: %w", err)
	}
	return !report.Empty(), d.Print(cmd.OutOrStdout(), report.Sheet())
}
