package gcp

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tokens issues tokens that name their source: a service account's file, a user, workload
// identity federation, or the metadata server.
func tokens(t *testing.T) string {
	give := func(w http.ResponseWriter, token string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600,"issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}`, token)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.FormValue("grant_type"), "jwt-bearer") && strings.Count(r.FormValue("assertion"), ".") == 2:
			give(w, "file")
		case r.FormValue("refresh_token") == "refresh":
			give(w, "user")
		case strings.Contains(r.FormValue("grant_type"), "token-exchange") && r.FormValue("subject_token") == "outside":
			give(w, "federated")
		default:
			t.Errorf("asked for %v", r.Form)
		}
	})
	mux.HandleFunc("GET /computeMetadata/v1/", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Metadata-Flavor") != "Google":
			w.WriteHeader(http.StatusForbidden)
		case strings.HasSuffix(r.URL.Path, "/token"):
			if !strings.Contains(r.URL.RawQuery, "compute") {
				t.Errorf("no scope: %s", r.URL)
			}
			w.Header().Set("Metadata-Flavor", "Google")
			give(w, "instance")
		case strings.HasSuffix(r.URL.Path, "/project-id"):
			fmt.Fprint(w, "shop")
		default:
			http.NotFound(w, r)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func write(t *testing.T, v any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	text, isText := v.(string)
	if !isText {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Credentials are found in all usual places, and requests contain their token.
func TestCredentials(t *testing.T) {
	url := tokens(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	account := map[string]string{
		"type": "service_account", "client_email": "a@shop.iam.gserviceaccount.com", "private_key_id": "1", "private_key": string(text),
		"token_uri": url + "/token", "project_id": "shop",
	}
	none := filepath.Join(t.TempDir(), "none")
	for name, c := range map[string]struct {
		env         map[string]string
		want, quota string
	}{
		"service account file": {map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": write(t, account)}, "file", ""},
		"federation": {map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": write(t, map[string]any{
			"type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
			"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": url + "/token",
			"credential_source": map[string]string{"file": write(t, "outside")},
		}), "GOOGLE_CLOUD_QUOTA_PROJECT": "pays"}, "federated", "pays"},
		"metadata server": {map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(url, "http://")}, "instance", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range map[string]string{"HOME": none, "GOOGLE_APPLICATION_CREDENTIALS": "", "GOOGLE_CLOUD_QUOTA_PROJECT": "", "GCE_METADATA_HOST": ""} {
				t.Setenv(k, v)
			}
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			var bearer, quota string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				bearer, quota = r.Header.Get("Authorization"), r.Header.Get("X-Goog-User-Project")
				fmt.Fprint(w, `{}`)
			}))
			defer s.Close()
			ctx, cancel := context.WithCancel(t.Context())
			a, err := connect(ctx, Config{Project: "shop", Endpoint: s.URL + "/"})
			cancel() // the context of the first Sync; later ones have their own
			if err != nil {
				t.Fatal(err)
			}
			if err := a.list(t.Context(), func(*networkRoute) {}); err != nil || bearer != "Bearer "+c.want || quota != c.quota {
				t.Errorf("%v: %s, quota %q", err, bearer, quota)
			}
		})
	}
}

// A user's file names the quota project.
func TestUser(t *testing.T) {
	t.Setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", write(t, map[string]string{
		"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "refresh", "quota_project_id": "pays",
	}))
	a, err := connect(t.Context(), Config{Project: "shop"})
	if err != nil || a.quota != "pays" || a.base != "https://compute.googleapis.com/compute/v1/projects/shop/global/" {
		t.Errorf("%+v, %v", a, err)
	}
}

// Invalid answers are errors, including truncated ones.
func TestStrangeAnswers(t *testing.T) {
	for _, text := range []string{"", "<html>", `{"items": [`, `{"items": 1}`} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
		a, err := connect(t.Context(), Config{Project: "shop", Endpoint: s.URL + "/", HTTP: http.DefaultClient})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.list(t.Context(), func(*networkRoute) {}); err == nil {
			t.Errorf("%q is taken", text)
		}
		s.Close()
	}
}
