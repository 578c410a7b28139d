package access

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/suggest"
	"github.com/fairlead/fairlead/internal/yamltree"
)

// Finder looks up the identity of a token.
type Finder interface {
	Find(token string) (Identity, bool)
}

// sum is the stored hash of a token.
type sum [sha256.Size]byte

// Tokens maps token hashes to identities. Tokens are random, so the hashes need neither
// salt nor a slow hash function.
type Tokens map[sum]Identity

// Find returns the identity of a token.
func (t Tokens) Find(token string) (Identity, bool) {
	i, known := t[sha256.Sum256([]byte(token))]
	return i, known
}

// Single returns Tokens with one token that permits everything.
func Single(name, token string) Tokens {
	return Tokens{sha256.Sum256([]byte(token)): {Name: name, Role: Admin}}
}

// Entry is one row of the token file.
type Entry struct {
	Name     string   `yaml:"name"`
	Role     Role     `yaml:"role"`
	Networks []string `yaml:"networks,omitempty"`
	Node     string   `yaml:"node,omitempty"`
	// SHA256 is the hash of the token in hexadecimal.
	SHA256 string `yaml:"sha256"`
}

var fields = []string{"name", "role", "networks", "node", "sha256"}

// New generates a token and its entry.
func New(e Entry) (token string, _ Entry, err error) {
	token = rand.Text() + rand.Text()
	hash := sha256.Sum256([]byte(token))
	e.SHA256 = hex.EncodeToString(hash[:])
	_, err = e.identity()
	return token, e, err
}

// identity returns the identity that an entry's token grants.
func (e Entry) identity() (Identity, error) {
	i := Identity{Name: e.Name, Role: e.Role, Networks: e.Networks, Node: e.Node}
	switch {
	case e.Name == "" || strings.ContainsFunc(e.Name, func(r rune) bool { return r <= ' ' || r > '~' }):
		return i, fmt.Errorf("name: %q is not a name: use one word, such as node-1", e.Name)
	case !slices.Contains(Roles, e.Role):
		return i, fmt.Errorf("role: %q is not a role: use one of %v", e.Role, Roles)
	case (e.Role == Tenant) != (len(e.Networks) > 0):
		return i, errors.New("networks: required for role tenant, and not allowed for others: use names or prefixes such as lab-*")
	case (e.Role == Node) != (e.Node != ""):
		return i, errors.New("node: required for role node, and not allowed for others: use a node name, or \"*\" for any node")
	}
	for _, n := range e.Networks {
		if n == "" || strings.Contains(strings.TrimSuffix(n, "*"), "*") {
			return i, fmt.Errorf("networks: %q is not a name: use a name, or a prefix such as lab-*", n)
		}
	}
	return i, nil
}

// Parse reads a token file. It reports all errors, one per line.
func Parse(name string, text []byte) (Tokens, error) {
	docs, bad := yamltree.Parse(name, text)
	if bad != nil {
		return nil, fmt.Errorf("%s:%d: %s", name, bad.Line, bad.Message)
	}
	tokens, names, faults := Tokens{}, map[string]bool{}, []error{}
	for _, doc := range docs {
		rows, line := rowsOf(doc)
		if rows == nil {
			faults = append(faults, fmt.Errorf("%s:%d: list of tokens not found: add it below \"tokens:\"", name, line))
			continue
		}
		for _, row := range rows.Content {
			e, hash, err := entry(row)
			if err == nil && names[e.Name] {
				err = fmt.Errorf("name: %s is duplicated: names distinguish tokens in the audit log", e.Name)
			}
			i, identityErr := e.identity()
			if err = cmp.Or(err, identityErr); err != nil {
				faults = append(faults, fmt.Errorf("%s:%d: token %s, %w", name, row.Line, e.Name, err))
				continue
			}
			if other, twice := tokens[hash]; twice {
				faults = append(faults, fmt.Errorf("%s:%d: token %s, sha256: also used by token %s: create another token", name, row.Line, e.Name, other.Name))
				continue
			}
			names[e.Name], tokens[hash] = true, i
		}
	}
	return tokens, errors.Join(faults...)
}

// rowsOf returns the token list of a document, or the line where it should be.
func rowsOf(doc *yaml.Node) (rows *yaml.Node, line int) {
	if doc.Kind == yaml.DocumentNode && len(doc.Content) > 0 {
		doc = doc.Content[0]
	}
	if doc.Kind == yaml.MappingNode && len(doc.Content) == 2 && doc.Content[0].Value == "tokens" && doc.Content[1].Kind == yaml.SequenceNode {
		return doc.Content[1], doc.Line
	}
	return nil, doc.Line
}

// entry reads one row and rejects unknown fields by name.
func entry(row *yaml.Node) (e Entry, hash sum, err error) {
	if row.Kind != yaml.MappingNode {
		return e, hash, fmt.Errorf("has no fields: set %s", strings.Join(fields, ", "))
	}
	for k := 0; k < len(row.Content); k += 2 {
		if field := row.Content[k].Value; !slices.Contains(fields, field) {
			return e, hash, fmt.Errorf("%s: unknown field%s", field, suggest.DidYouMean(field, fields))
		}
	}
	if err := row.Decode(&e); err != nil {
		return e, hash, err
	}
	b, err := hex.DecodeString(e.SHA256)
	if err != nil || len(b) != len(hash) {
		return e, hash, fmt.Errorf("sha256: want a SHA-256 hash in hexadecimal digits: create a token with fairlead vdn token")
	}
	return e, sum(b), nil
}

// File is a token file that is read again when it changes, so that a token removed from it
// loses its permissions.
type File struct {
	path string
	also Tokens
	log  *slog.Logger

	mu     sync.Mutex
	stamp  time.Time
	tokens Tokens
}

// Open reads a token file. also holds additional tokens.
func Open(path string, also Tokens, log *slog.Logger) (*File, error) {
	f := &File{path: path, also: also, log: log}
	return f, f.read()
}

func (f *File) read() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	text, err := limit.ReadFile(f.path, limit.Secret)
	if err != nil {
		return err
	}
	tokens, err := Parse(f.path, text)
	if err != nil {
		return err
	}
	f.stamp, f.tokens = info.ModTime(), tokens
	return nil
}

// Find returns the identity of a token. If the file cannot be read, the previous tokens
// remain in effect.
func (f *File) Find(token string) (Identity, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if info, err := os.Stat(f.path); err == nil && !info.ModTime().Equal(f.stamp) {
		if err := f.read(); err != nil {
			f.log.Error("vdn: invalid access file, keeping the previous tokens", "error", err)
			f.stamp = info.ModTime() // log the error only once
		}
	}
	if i, known := f.tokens.Find(token); known {
		return i, true
	}
	return f.also.Find(token)
}
