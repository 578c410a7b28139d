package vdn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Decode decodes one JSON value strictly: unknown fields are rejected by name.
func Decode(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return explain(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON object: send one object")
	}
	if bytes.Contains(text, []byte("null")) {
		return noNulls(text)
	}
	return nil
}

// noNulls rejects null in lists, which Go's decoder treats as a zero value. A field that is
// null counts as absent.
func noNulls(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	var within []json.Delim
	for {
		token, err := dec.Token()
		if err != nil {
			return nil // end of the text
		}
		switch d, _ := token.(json.Delim); {
		case d == '[' || d == '{':
			within = append(within, d)
		case d != 0:
			within = within[:len(within)-1]
		case token == nil && len(within) > 0 && within[len(within)-1] == '[':
			return fmt.Errorf("byte %d: null is not allowed in a list: remove it", dec.InputOffset())
		}
	}
}

// explain rewrites a decoder error in terms of JSON instead of Go.
func explain(err error) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	unknown, isUnknown := strings.CutPrefix(err.Error(), "json: unknown field ")
	switch {
	case errors.As(err, &kind):
		return fmt.Errorf("%s: unexpected JSON %s: see its schema in /v1/openapi.json", kind.Field, kind.Value)
	case errors.As(err, &syntax):
		return fmt.Errorf("invalid JSON at byte %d: %w", syntax.Offset, err)
	case errors.Is(err, io.EOF):
		return errors.New("empty body: send a JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("truncated JSON: send the whole object")
	case isUnknown:
		return fmt.Errorf("%s: unknown field: see /v1/openapi.json", strings.Trim(unknown, `"`))
	}
	return fmt.Errorf("%w: see its schema in /v1/openapi.json", err)
}
