package gcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/googleapi"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/version"
)

// scope is the OAuth scope of the credentials.
const scope = "https://www.googleapis.com/auth/compute"

// networkRoute is a route of a network (Compute Engine API, v1, routes).
type networkRoute struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Network     string `json:"network"`
	DestRange   string `json:"destRange"`
	NextHopIP   string `json:"nextHopIp,omitempty"`
	Priority    int    `json:"priority"` // 0 is a valid priority
}

// operation is an asynchronous operation of the cloud.
type operation struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Error  struct {
		Errors []operationError `json:"errors"`
	} `json:"error"`
}

type operationError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// api implements the few necessary requests, without the complete client, which takes
// long to compile.
type api struct {
	http *http.Client
	base string // URL of the project's global resources, with a trailing slash
	// quota is the project to which requests are charged, if different.
	quota string
}

// connect finds credentials like Google's libraries (Application Default Credentials):
// the file in GOOGLE_APPLICATION_CREDENTIALS (service account, workload identity
// federation, impersonation), those of gcloud, or those of the metadata server.
func connect(ctx context.Context, c Config) (*api, error) {
	a := &api{http: c.HTTP, quota: os.Getenv("GOOGLE_CLOUD_QUOTA_PROJECT")}
	endpoint := c.Endpoint
	if a.http == nil {
		// The credentials outlive the request that first needs them.
		found, err := google.FindDefaultCredentials(context.WithoutCancel(ctx), scope)
		if err != nil {
			return nil, fmt.Errorf("gcp: %w", err)
		}
		a.http = oauth2.NewClient(context.WithoutCancel(ctx), found.TokenSource)
		a.quota = cmp.Or(a.quota, quotaProject(found.JSON))
		universe, err := found.GetUniverseDomain()
		if err != nil {
			return nil, fmt.Errorf("gcp: the credentials' universe domain: %w", err)
		}
		endpoint = cmp.Or(endpoint, "https://compute."+universe+"/compute/v1/")
	}
	a.base = endpoint + "projects/" + url.PathEscape(c.Project) + "/global/"
	return a, nil
}

// quotaProject returns the quota project in a credentials file.
func quotaProject(file []byte) string {
	var of struct {
		Project string `json:"quota_project_id"`
	}
	_ = json.Unmarshal(file, &of) // credentials of the metadata server have no file
	return of.Project
}

// list calls each for every route of the project.
func (a *api) list(ctx context.Context, each func(*networkRoute)) error {
	for token := ""; ; {
		var page struct {
			Items []*networkRoute `json:"items"`
			Next  string          `json:"nextPageToken"`
		}
		query := url.Values{}
		if token != "" {
			query.Set("pageToken", token)
		}
		if err := a.do(ctx, http.MethodGet, "routes?"+query.Encode(), nil, &page); err != nil {
			return err
		}
		for _, r := range page.Items {
			each(r)
		}
		if token = page.Next; token == "" {
			return nil
		}
	}
}

func (a *api) remove(ctx context.Context, name string) (op operation, err error) {
	err = a.do(ctx, http.MethodDelete, "routes/"+url.PathEscape(name), nil, &op)
	return op, err
}

func (a *api) insert(ctx context.Context, r *networkRoute) (op operation, err error) {
	err = a.do(ctx, http.MethodPost, "routes", r, &op)
	return op, err
}

// wait returns when an operation has finished, or after two minutes.
func (a *api) wait(ctx context.Context, name string) (op operation, err error) {
	err = a.do(ctx, http.MethodPost, "operations/"+url.PathEscape(name)+"/wait", nil, &op)
	return op, err
}

// do sends a request and decodes its answer. Errors of the cloud are a googleapi.Error.
func (a *api) do(ctx context.Context, method, path string, body, into any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, a.base+strings.TrimSuffix(path, "?"), bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "fairlead/"+version.String())
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.quota != "" {
		r.Header.Set("X-Goog-User-Project", a.quota)
	}
	answer, err := a.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := googleapi.CheckResponse(answer); err != nil {
		return err
	}
	got, err := limit.ReadAll(answer.Body, "the answer of Compute Engine", limit.Text)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(got, into); err != nil {
		return fmt.Errorf("the answer of Compute Engine: %w", err)
	}
	return nil
}
