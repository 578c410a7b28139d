// Package auth sets the keys of authentication tags (bpf/include/auth.h) in programs,
// before they are loaded and while they run. The contents of a tag are defined only in
// the programs.
package auth

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/nodekey"
)

// Names of the programs' variables, and of the section of those that change at run time.
const (
	policyVariable = "auth_policy"
	setsVariable   = "auth_key_sets"
	atVariable     = "auth_keys_at"
	Section        = ".data.auth"
)

// sets is AUTH_KEY_SETS.
const sets = 4

// Values of enum auth_rule.
const off, accept, require = uint8(0), uint8(1), uint8(2)

// keySet is struct auth_keys.
type keySet struct {
	Key [nodekey.Most]struct{ K0, K1 uint64 }
	ID  [nodekey.Most]uint8
	N   uint8
	_   [5]uint8
}

func setOf(keys nodekey.Keys) (s keySet, err error) {
	if len(keys) == 0 || len(keys) > nodekey.Most {
		return s, fmt.Errorf("node keys: %d keys: must be 1 to %d", len(keys), nodekey.Most)
	}
	for i, k := range keys {
		s.Key[i].K0, s.Key[i].K1, s.ID[i] = k.K0, k.K1, k.ID
	}
	s.N = uint8(len(keys))
	return s, nil
}

// Preset makes programs that are not loaded yet create and check tags, or do neither if
// there are no keys.
func Preset(spec *ebpf.CollectionSpec, a nodekey.Auth) error {
	policy := spec.Variables[policyVariable]
	if len(a.Keys) == 0 {
		return policy.Set(off)
	}
	rule := accept
	if a.Require {
		rule = require
	}
	first, err := setOf(a.Keys)
	if err != nil {
		return err
	}
	return errors.Join(policy.Set(rule), spec.Variables[setsVariable].Set([sets]keySet{first}))
}

// Writer changes the keys of running programs.
type Writer struct {
	Sets, At *ebpf.Variable
}

// Set replaces the keys. Each packet is checked and tagged with either the previous or
// the new keys: the new ones are written where no program reads, and then activated.
func (w Writer) Set(keys nodekey.Keys) error {
	next, err := setOf(keys)
	if err != nil {
		return err
	}
	var all [sets]keySet
	var at uint32
	if err := errors.Join(w.Sets.Get(&all), w.At.Get(&at)); err != nil {
		return fmt.Errorf("node keys: %w", err)
	}
	if at %= sets; all[at] == next {
		return nil
	}
	at = (at + 1) % sets
	all[at] = next
	if err := w.Sets.Set(all); err != nil {
		return fmt.Errorf("node keys: %w", err)
	}
	if err := w.At.Set(at); err != nil {
		return fmt.Errorf("node keys: %w", err)
	}
	return nil
}
