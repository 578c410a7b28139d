// Package nodekey reads the keys with which load balancers and backend nodes authenticate
// the packets that they send to each other. It handles neither packets nor BPF. A key never
// appears in text, only its ID.
package nodekey

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"

	"github.com/fairlead/fairlead/internal/limit"
)

// Limits of a key file.
const (
	// Most is the maximum number of keys: the current one, and the next or the previous
	// one.
	Most = 2
	// shortest and longest limit the characters of a line.
	shortest, longest = 32, 1024
)

// Key is a key of SipHash-2-4.
type Key struct {
	K0, K1 uint64
	// ID identifies the key in packets and in the status. It reveals nothing about the key.
	ID uint8
}

// String returns the key's ID.
func (k Key) String() string { return fmt.Sprintf("%02x", k.ID) }

// Format prints the ID for every verb.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprint(f, k.String()) }

// LogValue keeps it out of logs.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText keeps it out of JSON and YAML.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Keys are the keys of a node: the first creates tags, all of them are accepted.
type Keys []Key

// Auth is the data plane's authentication configuration. Without keys it does nothing.
type Auth struct {
	Keys Keys
	// Require rejects packets without a valid tag; otherwise they are only counted.
	Require bool
}

// Read reads the keys of a file, one per nonempty line. The same line yields the same key
// everywhere.
func Read(file string) (Keys, error) {
	text, err := limit.ReadFile(file, limit.Secret)
	if err != nil {
		return nil, err
	}
	keys, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return keys, nil
}

// parse derives keys from lines. Its errors do not quote the lines.
func parse(text string) (Keys, error) {
	var keys Keys
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		switch {
		case len(keys) == Most:
			return nil, fmt.Errorf("line %d: more than %d keys: keep the one in use, and the next or the former one", number, Most)
		case len(line) < shortest:
			return nil, fmt.Errorf("line %d: %d characters: a key must have at least %d, as openssl rand -hex 32 prints", number, len(line), shortest)
		case len(line) > longest:
			return nil, fmt.Errorf("line %d: %d characters: a key has at most %d", number, len(line), longest)
		}
		key := derive(line)
		if len(keys) == 1 && keys[0] == key {
			return nil, fmt.Errorf("line %d: the same key twice", number)
		}
		if len(keys) == 1 && keys[0].ID == key.ID {
			return nil, fmt.Errorf("line %d: the keys have the same ID %s: generate another one", number, key)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no key: write one of at least %d characters into a line, as openssl rand -hex 32 prints", shortest)
	}
	return keys, nil
}

// derive derives a key from a line of any content.
func derive(line string) Key {
	sum := sha256.Sum256([]byte("fairlead node key\x00" + line))
	return Key{K0: binary.LittleEndian.Uint64(sum[0:]), K1: binary.LittleEndian.Uint64(sum[8:]), ID: sum[16]}
}
