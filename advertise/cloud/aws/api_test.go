package aws

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Endpoints are those of the SDK's rules for EC2.
func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		region    string
		fips, two bool
		want      string
	}{
		{"eu-west-1", false, false, "https://ec2.eu-west-1.amazonaws.com/"},
		{"eu-west-1", false, true, "https://ec2.eu-west-1.api.aws/"},
		{"us-east-1", true, false, "https://ec2-fips.us-east-1.amazonaws.com/"},
		{"us-east-1", true, true, "https://ec2-fips.us-east-1.api.aws/"},
		{"us-gov-west-1", true, false, "https://ec2.us-gov-west-1.amazonaws.com/"},
		{"us-gov-west-1", true, true, "https://ec2-fips.us-gov-west-1.api.aws/"},
		{"cn-north-1", false, false, "https://ec2.cn-north-1.amazonaws.com.cn/"},
		{"cn-north-1", false, true, "https://ec2.cn-north-1.api.amazonwebservices.com.cn/"},
		{"us-iso-east-1", false, false, "https://ec2.us-iso-east-1.c2s.ic.gov/"},
		{"us-isob-east-1", false, false, "https://ec2.us-isob-east-1.sc2s.sgov.gov/"},
		{"eusc-de-east-1", false, false, "https://ec2.eusc-de-east-1.amazonaws.eu/"},
	} {
		if got := endpoint(c.region, c.fips, c.two); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// settings sets the environment from which the SDK's configuration is read, isolated from
// this machine's configuration.
func settings(t *testing.T, values map[string]string) {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none")
	all := map[string]string{
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "",
		"AWS_SESSION_TOKEN": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_PROFILE": "", "AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_EC2": "",
	}
	for k, v := range values {
		all[k] = v
	}
	for k, v := range all {
		t.Setenv(k, v)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The EC2 endpoint can be configured in every way that the SDK supports.
func TestConfiguredEndpoint(t *testing.T) {
	shared := write(t, "[default]\nregion = eu-west-1\nservices = here\n[services here]\nec2 =\n  endpoint_url = https://shared.example\n")
	for want, env := range map[string]map[string]string{
		"https://ec2.eu-west-1.amazonaws.com/":      {"AWS_REGION": "eu-west-1"},
		"https://all.example":                       {"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "https://all.example"},
		"https://own.example":                       {"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "https://all.example", "AWS_ENDPOINT_URL_EC2": "https://own.example"},
		"https://shared.example":                    {"AWS_CONFIG_FILE": shared},
		"https://ec2.us-west-2.amazonaws.com/":      {"AWS_REGION": "us-west-2", "AWS_ENDPOINT_URL": "https://all.example", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
		"https://ec2-fips.us-east-2.amazonaws.com/": {"AWS_REGION": "us-east-2", "AWS_USE_FIPS_ENDPOINT": "true"},
		"https://ec2.us-east-2.api.aws/":            {"AWS_REGION": "us-east-2", "AWS_USE_DUALSTACK_ENDPOINT": "true"},
	} {
		t.Run(want, func(t *testing.T) {
			settings(t, env)
			if a, err := connect(t.Context()); err != nil || a.endpoint != want {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	for _, region := range []string{"", "example.com/"} {
		settings(t, map[string]string{"AWS_REGION": region})
		if a, err := connect(t.Context()); err == nil || !strings.Contains(err.Error(), "aws: ") {
			t.Errorf("%+v of region %q: %v", a, region, err)
		}
	}
}

// credentialServer provides credentials like for a container, an instance and a service
// account (IRSA).
func credentialServer(t *testing.T) string {
	const expires = "2099-01-01T00:00:00Z"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /container", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "secret" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprintf(w, `{"AccessKeyId":"CONTAINER","SecretAccessKey":"s","Token":"t","Expiration":%q}`, expires)
	})
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "600")
		fmt.Fprint(w, "imds")
	})
	mux.HandleFunc("GET /latest/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Aws-Ec2-Metadata-Token") != "imds" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		switch r.URL.Path {
		case "/latest/dynamic/instance-identity/document":
			fmt.Fprint(w, `{"region":"ap-south-1"}`)
		case "/latest/meta-data/iam/security-credentials/":
			fmt.Fprint(w, "role")
		case "/latest/meta-data/iam/security-credentials/role":
			fmt.Fprintf(w, `{"Code":"Success","AccessKeyId":"INSTANCE","SecretAccessKey":"s","Token":"t","Expiration":%q}`, expires)
		default:
			http.NotFound(w, r)
		}
	})
	mux.HandleFunc("POST /sts/", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("Action") != "AssumeRoleWithWebIdentity" || r.FormValue("WebIdentityToken") != "web" || r.FormValue("RoleArn") != "arn:aws:iam::1:role/x" {
			t.Errorf("STS is asked for %v", r.Form)
		}
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>WEB</AccessKeyId>
<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, expires)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// Credentials are found in all usual places, and the region on an instance.
func TestCredentials(t *testing.T) {
	url := credentialServer(t)
	for want, env := range map[string]map[string]string{
		"ENV us-west-1":        {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-west-1"},
		"SHARED us-west-2":     {"AWS_SHARED_CREDENTIALS_FILE": write(t, "[one]\naws_access_key_id = SHARED\naws_secret_access_key = s\n"), "AWS_CONFIG_FILE": write(t, "[profile one]\nregion = us-west-2\n"), "AWS_PROFILE": "one"},
		"CONTAINER eu-west-1":  {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url + "/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "secret", "AWS_REGION": "eu-west-1"},
		"INSTANCE ap-south-1":  {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": url},
		"WEB eu-central-1":     {"AWS_WEB_IDENTITY_TOKEN_FILE": write(t, "web"), "AWS_ROLE_ARN": "arn:aws:iam::1:role/x", "AWS_ENDPOINT_URL_STS": url + "/sts/", "AWS_REGION": "eu-central-1"},
		"PROCESS eu-central-1": {"AWS_CONFIG_FILE": write(t, "[default]\ncredential_process = echo '{\"Version\":1,\"AccessKeyId\":\"PROCESS\",\"SecretAccessKey\":\"s\"}'\n"), "AWS_REGION": "eu-central-1"},
	} {
		t.Run(want, func(t *testing.T) {
			settings(t, env)
			a, err := connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			who, err := a.credentials.Retrieve(t.Context())
			if got := who.AccessKeyID + " " + a.region; err != nil || got != want {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}

// signed verifies a request's signature like EC2, at a time of its own clock.
func signed(t *testing.T, r *http.Request, now time.Time) (ok bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || at.Sub(now).Abs() > 5*time.Minute {
		return false
	}
	again, err := http.NewRequest(r.Method, "http://"+r.Host+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		t.Error(err)
	}
	again.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	sum := sha256.Sum256(body)
	who := sdk.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "example"}
	if err := v4.NewSigner().SignHTTP(context.Background(), who, again, hex.EncodeToString(sum[:]), "ec2", "eu-west-1", at); err != nil {
		t.Error(err)
	}
	return again.Header.Get("Authorization") == r.Header.Get("Authorization")
}

// Requests are signed with the server's time if ours is wrong.
func TestSignature(t *testing.T) {
	var ahead, asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		now := time.Now().Add(time.Duration(ahead.Load()))
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		if !signed(t, r, now) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<Response><Errors><Error><Code>RequestExpired</Code><Message>late</Message></Error></Errors></Response>`)
		}
	}))
	defer s.Close()
	settings(t, map[string]string{"AWS_ENDPOINT_URL": s.URL, "AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "example"})
	a, err := connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		ahead time.Duration
		tries int64
	}{{0, 1}, {time.Hour, 2}, {time.Hour, 1}, {-time.Hour, 2}, {0, 2}} {
		ahead.Store(int64(step.ahead))
		asked.Store(0)
		if err := a.CreateTags(t.Context(), "rtb-1", tag{"a key", "a/b+c=ü"}); err != nil || asked.Load() != step.tries {
			t.Errorf("clock ahead by %s: %d attempts, %v", step.ahead, asked.Load(), err)
		}
	}
}

// An answer that never ends, and one that is invalid, are errors.
func TestStrangeAnswers(t *testing.T) {
	text := "<a"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
	defer s.Close()
	settings(t, map[string]string{"AWS_ENDPOINT_URL": s.URL, "AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
	a, err := connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, text = range []string{"<a", "", "{}", "<DescribeAddressesResponse><addressesSet><item>"} {
		if got, err := a.DescribeAddresses(t.Context()); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}
