// Package ipvsadm converts the output of "ipvsadm -Sn", a kernel's virtual services, to
// Services and reports everything else. It runs no program and does not access the kernel.
package ipvsadm

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/importer"
)

// Read converts a dump to manifests. The error is a SyntaxError.
func Read(name string, text []byte, marks importer.Marks) (*importer.Result, error) {
	r := &reader{marks: marks, lvs: importer.NewLVS(), byKey: map[string]*importer.VirtualServer{}, refused: map[string]bool{}}
	number := 0
	for l := range strings.Lines(string(text)) {
		number++
		at := importer.At{File: name, Line: number}
		words := strings.Fields(l)
		if len(words) > 0 && words[0] == "ipvsadm" {
			words = words[1:]
		}
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case strings.HasPrefix(l, "IP Virtual Server version"):
			return nil, &importer.SyntaxError{At: at, Message: "this is what ipvsadm -L writes; want the output of ipvsadm -Sn"}
		default:
			r.line(at, words)
		}
	}
	if len(r.all) > 0 {
		r.lose(r.all[0].At, "health checks", "the kernel's table does not contain them; none are created",
			"where nothing else takes dead servers out, take fairlead.io/health-check out for a TCP check")
	}
	for _, v := range r.all {
		r.lvs.Add(*v)
	}
	r.lvs.Sort()
	return &r.lvs.Result, nil
}

type reader struct {
	marks importer.Marks
	lvs   *importer.LVS
	all   []*importer.VirtualServer
	byKey map[string]*importer.VirtualServer
	// refused are services that were already reported.
	refused map[string]bool
}

func (r *reader) lose(at importer.At, what, why, fix string) {
	r.lvs.Lose(importer.Loss{At: at, What: what, Why: why, Fix: fix})
}

// commands maps the commands that add something to their short names.
var commands = map[string]string{"-A": "-A", "--add-service": "-A", "-a": "-a", "--add-server": "-a"}

func (r *reader) line(at importer.At, words []string) {
	o := parse(words)
	if len(o.unknown) > 0 && o.command != "" {
		r.lose(at, strings.Join(o.unknown, " "), "it is not known here", "if it matters, see what it does in ipvsadm(8)")
	}
	switch o.command {
	case "-A":
		r.add(at, o)
	case "-a":
		r.server(at, o)
	default:
		r.lose(at, strings.Join(words, " "), "it adds no service and no server", "leave it out")
	}
}

// add reads a virtual service.
func (r *reader) add(at importer.At, o options) {
	what := o.kind + " " + o.key
	if r.byKey[what] != nil {
		r.lose(at, what, fmt.Sprintf("%s has it already", r.byKey[what].At), "it is left out")
		return
	}
	v := &importer.VirtualServer{At: at, Scheduler: o.value["-s"], Unchecked: true}
	var ok bool
	if v.Listeners, ok = r.listeners(at, o); !ok {
		r.refused[what] = true
		return
	}
	if o.kind == "-f" {
		v.Name = "mark-" + o.key
	}
	_, v.OnePacket = o.value["-o"]
	if p, ok := o.value["-p"]; ok {
		const usual = 300 // default of ipvsadm
		seconds, err := strconv.ParseUint(p, 10, 31)
		if err != nil || seconds == 0 {
			seconds = usual
		}
		v.Persistent = time.Duration(seconds) * time.Second
	}
	if m, ok := o.value["-M"]; ok && m != "255.255.255.255" && m != "128" {
		r.lose(at, "-M "+m, "affinity is of single clients, not of networks", "scheduler dh sends all clients of a VIP to one server")
	}
	if pe, ok := o.value["--pe"]; ok {
		r.lose(at, "--pe "+pe, "clients are identified only by their addresses", "leave it out")
	}
	for flag := range strings.SplitSeq(o.value["-b"], ",") {
		switch flag {
		case "sh-port", "mh-port", "flag-2":
			v.HashPort = true
		case "", "sh-fallback", "mh-fallback", "flag-1":
		default:
			r.lose(at, "-b "+flag, "Fairlead's schedulers have no such flag", "leave it out")
		}
	}
	r.byKey[what] = v
	r.all = append(r.all, v)
}

// listeners returns the addresses of a virtual service.
func (r *reader) listeners(at importer.At, o options) ([]importer.Listener, bool) {
	protocol := map[string]service.Protocol{"-t": service.TCP, "-u": service.UDP, "--sctp-service": service.SCTP}[o.kind]
	switch {
	case o.kind == "-f":
		number, err := strconv.ParseUint(o.key, 0, 32)
		all := r.marks[uint32(number)]
		if err != nil || len(all) == 0 {
			r.lose(at, "-f "+o.key, "the rules that set a mark are not in the dump",
				fmt.Sprintf("specify what they match, such as --mark %d=10.1.1.1:80/tcp; it is left out", number))
			return nil, false
		}
		return all, true
	case protocol == 0:
		r.lose(at, "-A", "it names no service", "it is left out")
		return nil, false
	}
	a, port, err := address(o.key)
	if err != nil {
		r.lose(at, o.kind+" "+o.key, err.Error(), "it is left out: dump with ipvsadm -Sn, which writes numbers")
		return nil, false
	}
	return []importer.Listener{{Addr: a, Port: port, Protocol: protocol}}, true
}

// address parses "10.1.1.1:80", "[2001:db8::1]:80" or an address without a port.
func address(text string) (netip.Addr, uint16, error) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return a, 0, nil
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("%q is not an address with a port", text)
	}
	return at.Addr(), at.Port(), nil
}

// server reads a real server.
func (r *reader) server(at importer.At, o options) {
	what := o.kind + " " + o.key
	v := r.byKey[what]
	name := "server " + o.value["-r"]
	switch {
	case v == nil && r.refused[what]:
		return
	case v == nil:
		r.lose(at, name, "its service "+what+" is not among those before", "it is left out")
		return
	}
	lose := func(what, why, fix string) {
		v.Losses = append(v.Losses, importer.Loss{At: at, What: what, Why: why, Fix: fix})
	}
	a, port, err := address(o.value["-r"])
	if err != nil {
		lose(name, err.Error(), "it is left out: dump with ipvsadm -Sn, which writes numbers")
		return
	}
	s := importer.Server{At: at, Addr: a, Port: port, Method: service.DR, Weight: 1}
	if _, ok := o.value["-m"]; ok {
		s.Method = service.NAT
	}
	if _, ok := o.value["-i"]; ok {
		s.Method, s.Encapsulation = service.Tunnel, service.IPIP
		tunnel(&s, o, lose)
	}
	if w, ok := o.value["-w"]; ok {
		n, err := strconv.ParseUint(w, 10, 31)
		if err != nil || n > service.MaxWeight {
			lose("-w "+w, fmt.Sprintf("weights are 0 to %d", service.MaxWeight), "the most is used: make all weights smaller alike")
			n = service.MaxWeight
		}
		s.Weight = uint32(n)
	}
	if n, err := strconv.ParseUint(o.value["-x"], 10, 32); err == nil {
		s.MaxConns = uint32(n)
	}
	if y := o.value["-y"]; y != "" && y != "0" {
		lose("-y "+y, "a server gets new connections as soon as it has fewer than its most", "leave it out")
	}
	v.Servers = append(v.Servers, s)
}

func tunnel(s *importer.Server, o options, lose func(what, why, fix string)) {
	switch kind := o.value["--tun-type"]; kind {
	case "gue":
		s.Encapsulation = service.GUE
		if n, err := strconv.ParseUint(o.value["--tun-port"], 10, 16); err == nil {
			s.GUEPort = uint16(n)
		}
	case "", "ipip":
	default:
		lose("--tun-type "+kind, "Fairlead has ipip and gue; ipip is used", "set fairlead.io/encapsulation to gue where routers must tell flows apart")
	}
	for _, sum := range []string{"--tun-csum", "--tun-remcsum"} {
		if _, ok := o.value[sum]; ok {
			lose(sum, "Fairlead's tunnels have no checksum of their own", "leave it out")
		}
	}
}

// options are the parsed words of a line.
type options struct {
	command, kind, key string
	value              map[string]string
	unknown            []string
}

// short maps options to their short names.
var short = map[string]string{
	"--tcp-service": "-t", "--udp-service": "-u", "--fwmark-service": "-f", "--scheduler": "-s", "--persistent": "-p",
	"--netmask": "-M", "--sched-flags": "-b", "--ops": "-o", "-O": "-o", "--ipv6": "-6", "--real-server": "-r",
	"--gatewaying": "-g", "--ipip": "-i", "--masquerading": "-m", "--weight": "-w", "--u-threshold": "-x", "--l-threshold": "-y",
}

var (
	kinds  = []string{"-t", "-u", "-f", "--sctp-service"}
	valued = []string{"-s", "-M", "-b", "-r", "-w", "-x", "-y", "--pe", "--tun-type", "--tun-port"}
	plain  = []string{"-o", "-6", "-g", "-i", "-m", "--tun-csum", "--tun-nocsum", "--tun-remcsum"}
)

func parse(words []string) options {
	o := options{value: map[string]string{}}
	for i := 0; i < len(words); i++ {
		name, value, joined := strings.Cut(words[i], "=")
		if !strings.HasPrefix(name, "--") {
			name, joined = words[i], false
		}
		if s, ok := short[name]; ok {
			name = s
		}
		next := func() string {
			if !joined && i+1 < len(words) {
				i++
				value = words[i]
			}
			return value
		}
		switch {
		case commands[name] != "":
			o.command = commands[name]
		case slices.Contains(kinds, name):
			o.kind, o.key = name, next()
		case slices.Contains(valued, name):
			o.value[name] = next()
		case name == "-p" && !joined && (i+1 == len(words) || strings.HasPrefix(words[i+1], "-")):
			o.value[name] = ""
		case name == "-p":
			o.value[name] = next()
		case slices.Contains(plain, name):
			o.value[name] = ""
		default:
			o.unknown = append(o.unknown, words[i])
		}
	}
	return o
}
