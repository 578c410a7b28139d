package object

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/suggest"
)

func setInt(to *int, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", v)
	}
	*to = n
	return nil
}

func setPort(to *uint16, v string) error {
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not a port; want 1 to 65535", v)
	}
	*to = uint16(n)
	return nil
}

// setEither sets a value with two choices, of which yes is true.
func setEither(to *bool, v, yes, no string) error {
	if v != yes && v != no {
		return fmt.Errorf("unknown value %q; want %s or %s", v, yes, no)
	}
	*to = v == yes
	return nil
}

func setDuration(to *time.Duration, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil {
		return fmt.Errorf("%q is not a duration; want one like \"500ms\" or \"2s\"", v)
	}
	*to = d
	return nil
}

// split splits a comma-separated list.
func split(v string) ([]string, error) {
	parts := strings.Split(v, ",")
	for i, part := range parts {
		if parts[i] = strings.TrimSpace(part); parts[i] != "" {
			continue
		}
		if len(parts) == 1 {
			return nil, errors.New("is empty; want one value, or several separated by commas")
		}
		return nil, fmt.Errorf("%q has a comma too many; want values separated by one comma each", v)
	}
	return parts, nil
}

// eachPart calls read for the parts of a comma-separated list.
func eachPart(v string, read func(part string) error) error {
	parts, err := split(v)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err := read(part); err != nil && strings.ContainsAny(part, " \t\r\n;|") {
			return fmt.Errorf("%w; separate several values by commas", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// pair splits "key = value".
func pair(part string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(part, "=")
	return strings.TrimSpace(key), strings.TrimSpace(value), ok
}

func setList[T any](to *[]T, v string, parse func(string) (T, error)) error {
	return eachPart(v, func(part string) error {
		x, err := parse(part)
		*to = append(*to, x)
		return err
	})
}

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, fmt.Errorf("%q is not an IP address%s", s, insteadOfAddr(s))
	}
	return a, service.CheckUnicast(a)
}

// insteadOfAddr describes what a text is instead of an address, if it is recognizable.
func insteadOfAddr(s string) string {
	p, prefixErr := netip.ParsePrefix(s)
	port, portErr := netip.ParseAddrPort(s)
	trimmed, trimErr := netip.ParseAddr(strings.Trim(s, "[]{}()<>\"' "))
	first, last, _ := strings.Cut(s, "-")
	_, firstErr := netip.ParseAddr(strings.TrimSpace(first))
	_, lastErr := netip.ParseAddr(strings.TrimSpace(last))
	strange := strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
	switch {
	case prefixErr == nil && p.IsSingleIP():
		return fmt.Sprintf("; did you mean %s, without the length?", p.Addr())
	case prefixErr == nil:
		return "; it is a prefix, and addresses are wanted one by one"
	case portErr == nil:
		return fmt.Sprintf("; did you mean %s, without the port?", port.Addr())
	case trimErr == nil:
		return fmt.Sprintf("; did you mean %s?", trimmed)
	case firstErr == nil && lastErr == nil:
		return "; it is a range, and addresses are wanted one by one"
	case strange >= 0:
		r, _ := utf8.DecodeRuneInString(s[strange:])
		return fmt.Sprintf("; it contains %U, which no address has", r)
	case strings.Contains(s, "${"), strings.Contains(s, "{{"), strings.HasPrefix(s, "$"):
		return "; it looks like a variable that was not replaced"
	case zeros.MatchString(s):
		return "; its numbers must not begin with 0"
	case hostName.MatchString(s):
		return "; names are not looked up"
	}
	return ""
}

// hostName matches texts that may be hostnames and are not mistyped IPv4 addresses.
var hostName = regexp.MustCompile(`^[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*[a-zA-Z]$`)

// zeros matches IPv4 addresses with leading zeros, which some programs interpret as octal.
var zeros = regexp.MustCompile(`^(\d{1,3}\.)*0\d{1,2}(\.\d{1,3})*$`)

// parseNetwork parses "namespace/name" or "name".
func parseNetwork(v string) (string, error) {
	namespace, name, ok := strings.Cut(v, "/")
	if !ok {
		namespace, name = "", v
	}
	if name == "" || ok && namespace == "" || strings.ContainsAny(name, "/@, ") || strings.ContainsAny(namespace, "@, ") {
		return "", fmt.Errorf("%q is no network; want the name of one, or namespace/name, as Multus has it in %s", v, AnnotationNetworkStatus)
	}
	return v, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if a, addrErr := netip.ParseAddr(s); err != nil && addrErr == nil && a.Zone() == "" {
		return p, fmt.Errorf("%q is not a prefix: the length is missing; use %s for the single address", s, netip.PrefixFrom(a, a.BitLen()))
	}
	if err != nil {
		return p, fmt.Errorf("%q is not a prefix; want one like \"10.1.1.0/24\"", s)
	}
	return p, nil
}

// perAddr parses "address=value,address=value", where what describes a value like that of
// example.
func perAddr[T any](v, what, example string, parse func(a netip.Addr, text string) (T, error)) (map[netip.Addr]T, error) {
	all := map[netip.Addr]T{}
	err := eachPart(v, func(part string) error {
		addr, text, ok := pair(part)
		if !ok {
			return fmt.Errorf("%q is not %s; want address=%s, such as %q", part, what, what[strings.LastIndex(what, " ")+1:], example)
		}
		a, err := parseAddr(addr)
		if err != nil {
			return err
		}
		if _, twice := all[a]; twice {
			return fmt.Errorf("%s is given twice", a)
		}
		all[a], err = parse(a, text)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func parseWeights(v string) (map[netip.Addr]uint32, error) {
	return perAddr(v, "a weight", "172.16.1.2=3", func(a netip.Addr, text string) (uint32, error) {
		w, err := strconv.ParseUint(text, 10, 32)
		if err != nil || w > service.MaxWeight {
			return 0, fmt.Errorf("%q is not a weight for %s; want 0 to %d", text, a, service.MaxWeight)
		}
		return uint32(w), nil
	})
}

// span is when a backend began to take flows, and when it began to drain; zero if unknown.
type span struct{ since, drained time.Time }

func parseSince(v string) (map[netip.Addr]span, error) {
	return perAddr(v, "a time", "172.16.1.2=2026-01-02T15:04:05Z", func(a netip.Addr, text string) (s span, err error) {
		begin, end, ended := strings.Cut(text, "/")
		if s.since, err = parseTime(a, begin); err != nil || !ended {
			return s, err
		}
		if s.drained, err = parseTime(a, end); err == nil && !s.drained.After(s.since) {
			err = fmt.Errorf("%s drains since %s, which is not after %s, when it began", a, end, begin)
		}
		return s, err
	})
}

func parseTime(a netip.Addr, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Unix() <= 0 {
		return t, fmt.Errorf("%q is not a time for %s; want one like \"2026-01-02T15:04:05Z\"", text, a)
	}
	return t.UTC(), nil
}

// maxConns is how many connections backends may have; 0: any number.
type maxConns struct {
	all  uint32
	each map[netip.Addr]uint32
}

func (m maxConns) of(a netip.Addr) uint32 { return max(m.all, m.each[a]) }

func (m maxConns) any() bool { return m.all > 0 || len(m.each) > 0 }

func parseMaxConns(v string) (m maxConns, err error) {
	if !strings.Contains(v, "=") {
		m.all, err = positive("a number of connections", v)
		return m, err
	}
	m.each, err = perAddr(v, "a number", "172.16.1.2=500", func(a netip.Addr, text string) (uint32, error) {
		return positive("a number of connections for "+a.String(), text)
	})
	return m, err
}

func positive(what, v string) (uint32, error) {
	n, err := strconv.ParseUint(v, 10, 32)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not %s; want 1 or more, or leave it out for no limit", v, what)
	}
	return uint32(n), nil
}

func parseLimits(v string) (l service.Limits, err error) {
	err = eachPart(v, func(part string) (err error) {
		name, text, ok := pair(part)
		field := l.Named(name)
		switch {
		case !ok:
			return fmt.Errorf("%q is not a limit; want limit=number, such as \"client-cps=50\"", part)
		case field == nil:
			return fmt.Errorf("unknown limit %q%s", name, cmp.Or(suggest.DidYouMean(name, service.LimitNames), "; want "+service.Alternatives(service.LimitNames)))
		case *field != 0:
			return fmt.Errorf("%s is given twice", name)
		}
		*field, err = positive("a number of "+name+" a second", text)
		return err
	})
	return l, err
}

// portRanges defines which ports of a Service are ranges.
type portRanges struct {
	whole  bool
	byName map[string]portRange
}

type portRange struct{ first, last uint16 }

func parseRanges(v string) (r portRanges, err error) {
	if strings.TrimSpace(v) == "all" {
		return portRanges{whole: true}, nil
	}
	r.byName = map[string]portRange{}
	err = eachPart(v, func(part string) error {
		name, text, named := pair(part)
		if !named {
			name, text = "", name
		}
		if _, twice := r.byName[name]; twice {
			return fmt.Errorf("port %q is given twice", name)
		}
		r.byName[name], err = parseRange(text)
		return err
	})
	if err != nil {
		return portRanges{}, err
	}
	return r, nil
}

func parseRange(text string) (r portRange, err error) {
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		return r, fmt.Errorf("%q is not a range of ports; want one like \"rtp=10000-19999\", or \"all\"", text)
	}
	for to, v := range map[*uint16]string{&r.first: first, &r.last: last} {
		if err := setPort(to, v); err != nil {
			return r, err
		}
	}
	if r.first >= r.last {
		return r, fmt.Errorf("%q is not a range of ports; want the lower port first", text)
	}
	return r, nil
}

// apply turns the selected ports into ranges.
func (r portRanges) apply(ports []listenerPort) ([]listenerPort, []Fault) {
	if r.whole && len(ports) > 0 {
		return []listenerPort{{protocol: service.AnyProtocol, last: 65535, field: ports[0].field}}, nil
	}
	var faults []Fault
	refuse := func(format string, args ...any) {
		faults = append(faults, Fault{annotation(AnnotationPortRanges), fmt.Sprintf(format, args...)})
	}
	for _, name := range slices.Sorted(maps.Keys(r.byName)) {
		its := r.byName[name]
		i := slices.IndexFunc(ports, func(p listenerPort) bool { return p.name == name || name == "" && len(ports) == 1 })
		switch {
		case i < 0:
			refuse("the Service has no port named %q", name)
		case ports[i].number != its.first:
			refuse("the range begins at %d, but the port %q is %d; want the same number", its.first, name, ports[i].number)
		default:
			ports[i].last = its.last
		}
	}
	return ports, faults
}
