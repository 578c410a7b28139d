package sysdump

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Redacted stands in place of a secret.
const Redacted = "REDACTED"

var (
	// secretName matches names of fields and settings with secret values. A name that ends in
	// File, Ref or Name refers to a secret.
	secretName = regexp.MustCompile(`(?i)(passw|secret|token|credential|authoriz|cookie|private.?key|api.?key|key-data)`)
	refersTo   = regexp.MustCompile(`(?i)(file|ref|refs|name|names|path|namespace|since|count|sent|accepted|rejected)$`)
	// assignment matches a secret after its name.
	assignment = regexp.MustCompile(`(?i)\b([a-z0-9_.-]*(?:passw(?:or)?d|secret|token|credentials?|authorization|api[_-]?key|private[_-]?key)["']?\s*[:=]\s*["']?)[^\s"',;&}]+`)
	// patterns match secrets in text.
	patterns = []struct {
		find *regexp.Regexp
		with string
	}{
		{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`), Redacted},
		{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/_.=~-]{6,}`), "$1 " + Redacted},
		{regexp.MustCompile(`(://[^/\s:@"']*):[^/\s@"']+@`), "$1:" + Redacted + "@"},
		{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), Redacted},
		{regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{16}\b`), Redacted},
		{assignment, "${1}" + Redacted},
	}
)

// minSecret is the length below which a known value is not searched for: it would be found
// everywhere.
const minSecret = 5

// Redactor removes secrets.
type Redactor struct{ known []string }

// Know adds a secret, in the ways in which it may be encoded.
func (r *Redactor) Know(value string) {
	value = strings.TrimSpace(value)
	if len(value) < minSecret || value == Redacted {
		return
	}
	quoted, _ := json.Marshal(value) // a string can be encoded
	r.known = append(r.known, value, strings.Trim(string(quoted), `"`), url.QueryEscape(value),
		base64.StdEncoding.EncodeToString([]byte(value)), hex.EncodeToString([]byte(value)))
}

// KnowFile adds the secrets in a file that a setting names: its lines, the values of secret
// fields in them, and passwords and parameters of URLs.
func (r *Redactor) KnowFile(text []byte) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		r.Know(line)
		if name, value, ok := strings.Cut(line, ":"); ok && secretName.MatchString(strings.TrimSpace(name)) {
			r.Know(strings.Trim(strings.TrimSpace(value), `"'`))
		}
		for _, m := range assignment.FindAllStringSubmatch(line, -1) {
			r.Know(strings.TrimPrefix(m[0], m[1]))
		}
		u, err := url.Parse(line)
		if err != nil || u.Host == "" {
			continue
		}
		if p, ok := u.User.Password(); ok {
			r.Know(p)
		}
		for _, values := range u.Query() {
			r.Know(values[0])
		}
	}
	r.KnowSecrets(text)
}

// KnowSecrets adds the values of Secrets among manifests.
func (r *Redactor) KnowSecrets(text []byte) {
	for _, doc := range documents(text) {
		object, _ := doc.(map[string]any)
		if object["kind"] != "Secret" {
			continue
		}
		for _, field := range []string{"data", "stringData"} {
			values, _ := object[field].(map[string]any)
			for _, v := range values {
				s, _ := v.(string)
				r.Know(s)
				if raw, err := base64.StdEncoding.DecodeString(s); err == nil && field == "data" {
					r.Know(string(raw))
				}
			}
		}
	}
}

// documents parses YAML, or JSON, up to the first error.
func documents(text []byte) (all []any) {
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc any
		if err := dec.Decode(&doc); err != nil {
			return all
		}
		all = append(all, doc)
	}
}

// Text redacts a text.
func (r *Redactor) Text(text []byte) []byte {
	// The longest first: a secret may begin with another one.
	known := slices.SortedFunc(slices.Values(r.known), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	pairs := make([]string, 0, 2*len(known))
	for _, secret := range known {
		pairs = append(pairs, secret, Redacted)
	}
	s := strings.NewReplacer(pairs...).Replace(string(text))
	for _, p := range patterns {
		s = p.find.ReplaceAllString(s, p.with)
	}
	return []byte(s)
}

// JSON redacts a value, and returns it as indented JSON.
func (r *Redactor) JSON(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var tree any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err = enc.Encode(prune(tree))
	return r.Text(b.Bytes()), err
}

// Manifest redacts manifests. What cannot be parsed is shown, because that may be the fault,
// unless it may be a Secret.
func (r *Redactor) Manifest(text []byte) []byte {
	var b bytes.Buffer
	dec, enc := yaml.NewDecoder(bytes.NewReader(text)), yaml.NewEncoder(&b)
	for {
		var doc any
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if bytes.Contains(text, []byte("Secret")) {
				return []byte("# " + Redacted + ": it mentions a Secret, and is not valid: " + err.Error() + "\n")
			}
			return r.Text(text)
		}
		if err := enc.Encode(prune(doc)); err != nil {
			return []byte("# " + err.Error() + "\n")
		}
	}
	_ = enc.Close() // it writes to memory
	return r.Text(b.Bytes())
}

// prune redacts secret fields, values of environment variables, and copies of objects in
// annotations.
func prune(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = prune(v[i])
		}
	case map[string]any:
		secret := v["kind"] == "Secret"
		_, named := v["name"].(string)
		if _, is := v["value"].(string); is && named {
			v["value"] = Redacted
		}
		for key, value := range v {
			switch {
			case key == "kubectl.kubernetes.io/last-applied-configuration":
				delete(v, key)
			case secret && (key == "data" || key == "stringData"), isScalar(value) && secretName.MatchString(key) && !refersTo.MatchString(key):
				v[key] = Redacted
			default:
				v[key] = prune(value)
			}
		}
	}
	return v
}

func isScalar(v any) bool {
	s, is := v.(string)
	return is && s != ""
}
