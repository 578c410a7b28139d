package vdn

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Rate is in bit/s. Its text form may have a decimal unit: 400M, 1.5G.
type Rate uint64

// units in descending order.
var units = []struct {
	suffix string
	bits   float64
}{{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}, {"", 1}}

// ParseRate parses "400M", "1.5G", "9600".
func ParseRate(s string) (Rate, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || number[0] < '0' || number[0] > '9' || strings.ContainsAny(number, "_xXpP") || !(f >= 0) || f*u.bits >= math.MaxInt64 {
			break
		}
		return Rate(math.Round(f * u.bits)), nil
	}
	return 0, fmt.Errorf("rate %q is invalid: use bit/s, such as 400M, 1.5G or 9600", s)
}

// String formats the rate for ParseRate with the largest unit that needs no rounding.
func (r Rate) String() string {
	for _, u := range units {
		f := float64(r) / u.bits
		if f < 1 {
			continue
		}
		text := strconv.FormatFloat(f, 'f', -1, 64) + u.suffix
		if same, err := ParseRate(text); err == nil && same == r {
			return text
		}
	}
	return strconv.FormatUint(uint64(r), 10)
}

// MarshalJSON encodes the rate as String.
func (r Rate) MarshalJSON() ([]byte, error) { return json.Marshal(r.String()) }

// UnmarshalJSON accepts what ParseRate does, and bare numbers.
func (r *Rate) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	}
	parsed, err := ParseRate(s)
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}
