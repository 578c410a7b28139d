package refuse

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Rule rejects one feature of the kernel with an errno.
type Rule struct {
	Kind, Name string
	Errno      syscall.Errno
	matcher
}

// matcher recognizes system calls that use a feature.
type matcher interface {
	// watch makes the filter notify the supervisor of candidates.
	watch(*filter)
	matches(*call) bool
}

func (r Rule) String() string {
	return fmt.Sprintf("%s:%s=%s", r.Kind, r.Name, errnoName(r.Errno))
}

// kind is the part before the colon of a rule.
type kind struct {
	name, about string
	// parse returns a matcher for a name. known are the names, or a description of them.
	parse func(name string) (m matcher, known []string)
}

// kinds are in the order in which the usage lists them.
var kinds = []kind{
	{"prog", "program type at BPF_PROG_LOAD: xdp, schedcls, tracing, ...", parseProgram},
	{"attach", "attach type at BPF_PROG_LOAD, BPF_LINK_CREATE and BPF_PROG_ATTACH: tcxingress, ...", parseAttach},
	{"map", "map type at BPF_MAP_CREATE: ringbuf, perfeventarray, lruhash, ...", parseMap},
	{"helper", "programs that call a helper: perf_event_output, ...", parseHelper},
	{"kfunc", "programs that call any kfunc: *", parseKfunc},
	{"cmd", "command of bpf(2): prog_test_run, link_create, btf_load, ...", parseCommand},
	{"xdpmode", "mode of an XDP link: native (also where no mode is given), generic", parseXDPMode},
	{"netlink", "netlink sockets and messages: " + strings.Join(netlinkNames(), ", "), parseNetlink},
}

func knownKinds() string {
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, "  %-8s %s\n", k.name, k.about)
	}
	return b.String()
}

// Parse takes rules of the form kind:name=ERRNO from the beginning of args. The
// first argument that does not look like a rule, or the one after "--", begins
// the command.
func Parse(args []string) (rules []Rule, command []string, err error) {
	for len(args) > 0 && looksLikeRule(args[0]) {
		r, err := parseRule(args[0])
		if err != nil {
			return nil, nil, err
		}
		rules, args = append(rules, r), args[1:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	switch {
	case len(rules) == 0:
		return nil, nil, errors.New("no rules: give at least one KIND:NAME=ERRNO before the command")
	case len(args) == 0:
		return nil, nil, errors.New("no command after the rules")
	}
	return rules, args, nil
}

// looksLikeRule is also true for misspelled rules: as a command they would only be
// reported as not found.
func looksLikeRule(arg string) bool {
	head, _, found := strings.Cut(arg, ":")
	return found && head != "" && strings.Trim(head, "abcdefghijklmnopqrstuvwxyz") == ""
}

func parseRule(text string) (Rule, error) {
	what, errno, found := strings.Cut(text, "=")
	if !found {
		return Rule{}, fmt.Errorf("rule %q: no errno: want KIND:NAME=ERRNO", text)
	}
	r := Rule{}
	r.Kind, r.Name, _ = strings.Cut(strings.ToLower(what), ":")
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == r.Kind })
	if i < 0 {
		return Rule{}, fmt.Errorf("rule %q: unknown kind %q, known are:\n%s", text, r.Kind, knownKinds())
	}
	m, known := kinds[i].parse(r.Name)
	if m == nil {
		return Rule{}, fmt.Errorf("rule %q: unknown %s %q, known are: %s", text, r.Kind, r.Name, strings.Join(known, ", "))
	}
	number, err := parseErrno(errno)
	if err != nil {
		return Rule{}, fmt.Errorf("rule %q: %w", text, err)
	}
	r.matcher, r.Errno = m, number
	return r, nil
}

// maxErrno is the kernel's MAX_ERRNO.
const maxErrno = 4095

// otherErrnos are missing in unix.ErrnoName: aliases, and ENOTSUPP, which is internal to
// the kernel, but which bpf(2) returns.
var otherErrnos = map[string]syscall.Errno{
	"EOPNOTSUPP": unix.EOPNOTSUPP, "ENOTSUP": unix.ENOTSUP, "EWOULDBLOCK": unix.EWOULDBLOCK, "EDEADLOCK": unix.EDEADLK, "ENOTSUPP": 524,
}

func parseErrno(text string) (syscall.Errno, error) {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil && n > 0 && n <= maxErrno {
		return syscall.Errno(n), nil
	}
	name := strings.ToUpper(text)
	if n, ok := otherErrnos[name]; ok {
		return n, nil
	}
	for n := syscall.Errno(1); n < 256; n++ {
		if unix.ErrnoName(n) == name {
			return n, nil
		}
	}
	return 0, fmt.Errorf("unknown errno %q: want a name such as EPERM, or a number from 1 to %d", text, maxErrno)
}

func errnoName(n syscall.Errno) string {
	if name := unix.ErrnoName(n); name != "" {
		return name
	}
	return strconv.Itoa(int(n))
}
