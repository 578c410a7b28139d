package route

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Community is a BGP community: a standard one of two parts (RFC 1997), where Global and
// Local1 have 16 bits, or a large one of three (RFC 8092).
type Community struct {
	Large                  bool
	Global, Local1, Local2 uint32
}

// Well-known communities (IANA registry of BGP well-known communities).
var (
	GracefulShutdown = Community{Global: 65535, Local1: 0}      // RFC 8326
	Blackhole        = Community{Global: 65535, Local1: 666}    // RFC 7999
	NoExport         = Community{Global: 65535, Local1: 0xff01} // this and the following: RFC 1997
	NoAdvertise      = Community{Global: 65535, Local1: 0xff02}
	NoExportSubConf  = Community{Global: 65535, Local1: 0xff03}
	NoPeer           = Community{Global: 65535, Local1: 0xff04} // RFC 3765
)

var wellKnown = []struct {
	name string
	Community
}{
	{"graceful-shutdown", GracefulShutdown}, {"blackhole", Blackhole}, {"no-export", NoExport}, {"no-advertise", NoAdvertise},
	{"no-export-subconfed", NoExportSubConf}, {"no-peer", NoPeer},
}

// ParseCommunity parses "65000:1", "65000:1:2" or a well-known name.
func ParseCommunity(text string) (Community, error) {
	for _, known := range wellKnown {
		if text == known.name {
			return known.Community, nil
		}
	}
	parts := strings.Split(text, ":")
	c := Community{Large: len(parts) == 3}
	limit := uint64(math.MaxUint16)
	if c.Large {
		limit = math.MaxUint32
	}
	into := []*uint32{&c.Global, &c.Local1, &c.Local2}
	if len(parts) != 2 && len(parts) != 3 {
		return c, notCommunity(text)
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return c, notCommunity(text)
		}
		if n > limit {
			return c, fmt.Errorf("%q: %d is more than %d, the most that a part of a community of two has; one of three has up to %d", text, n, limit, uint32(math.MaxUint32))
		}
		*into[i] = uint32(n)
	}
	return c, nil
}

func notCommunity(text string) error {
	var names []string
	for _, known := range wellKnown {
		names = append(names, known.name)
	}
	return fmt.Errorf("%q is not a community; want one like 65000:1 or 65000:1:2, or one of %s", text, strings.Join(names, ", "))
}

// String returns the form that ParseCommunity parses.
func (c Community) String() string {
	for _, known := range wellKnown {
		if c == known.Community {
			return known.name
		}
	}
	if c.Large {
		return fmt.Sprintf("%d:%d:%d", c.Global, c.Local1, c.Local2)
	}
	return fmt.Sprintf("%d:%d", c.Global, c.Local1)
}

func (c Community) compare(o Community) int {
	large := map[bool]int{true: 1}
	return cmp.Or(cmp.Compare(large[c.Large], large[o.Large]), cmp.Compare(c.Global, o.Global),
		cmp.Compare(c.Local1, o.Local1), cmp.Compare(c.Local2, o.Local2))
}

// Communities is a set of communities as sorted, space-separated text. It is comparable,
// so that a Route is.
type Communities string

// CommunitiesOf returns a set.
func CommunitiesOf(all ...Community) Communities {
	all = slices.Clone(all)
	slices.SortFunc(all, Community.compare)
	var texts []string
	for _, c := range slices.Compact(all) {
		texts = append(texts, c.String())
	}
	return Communities(strings.Join(texts, " "))
}

// Parse returns the communities of a set. The error names an invalid one.
func (s Communities) Parse() (all []Community, err error) {
	for _, text := range strings.Fields(string(s)) {
		c, err := ParseCommunity(text)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// With returns the union of s and more.
func (s Communities) With(more ...Community) Communities {
	all, _ := s.Parse() // invalid entries are dropped
	return CommunitiesOf(append(all, more...)...)
}

// MarshalJSON encodes s as a list.
func (s Communities) MarshalJSON() ([]byte, error) { return json.Marshal(strings.Fields(string(s))) }

// UnmarshalJSON decodes what MarshalJSON encodes.
func (s *Communities) UnmarshalJSON(text []byte) error {
	var all []string
	err := json.Unmarshal(text, &all)
	*s = Communities(strings.Join(all, " "))
	return err
}

// Names is a set of names without spaces, as sorted, space-separated text. It is
// comparable.
type Names string

// NamesOf returns a set.
func NamesOf(all ...string) Names {
	all = slices.Clone(all)
	slices.Sort(all)
	return Names(strings.Join(slices.Compact(all), " "))
}

// List returns the names of a set.
func (n Names) List() []string { return strings.Fields(string(n)) }

// MarshalJSON encodes n as a list.
func (n Names) MarshalJSON() ([]byte, error) { return Communities(n).MarshalJSON() }

// UnmarshalJSON decodes what MarshalJSON encodes.
func (n *Names) UnmarshalJSON(text []byte) error { return (*Communities)(n).UnmarshalJSON(text) }

// Has reports whether a name is in the set.
func (n Names) Has(name string) bool { return slices.Contains(n.List(), name) }
