package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Config is an *Agent, *Reflector or *Router.
type Config interface {
	Validate() error
	complete() error
}

// Flags adds to fs --config and a flag for every setting of cfg, whose values
// now are the defaults. After fs is parsed, load fills cfg: the file's settings
// over the defaults, the flags' over those; then it finds out what is left
// open, and validates.
func Flags(fs *pflag.FlagSet, cfg Config) (load func() error) {
	file := fs.String("config", "", "a YAML `file` with the settings, named as the flags are: nextHops for --next-hop")
	settings := settingsOf(reflect.ValueOf(cfg).Elem())
	var given []*flagValue
	for _, s := range settings {
		v := &flagValue{setting: s}
		given = append(given, v)
		flag := fs.VarPF(v, s.flag, "", s.help)
		if s.field.Kind() == reflect.Bool {
			flag.NoOptDefVal = "true"
		}
	}
	return func() error {
		if *file != "" {
			if err := readFile(*file, settings); err != nil {
				return err
			}
		}
		for _, v := range given {
			v.apply()
		}
		if err := cfg.complete(); err != nil {
			return err
		}
		return cfg.Validate()
	}
}

// setting is one field that an operator can set.
type setting struct {
	name, flag, help string
	field            reflect.Value
}

func settingsOf(v reflect.Value) []setting {
	var all []setting
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			all = append(all, settingsOf(v.Field(i))...)
			continue
		}
		all = append(all, setting{f.Tag.Get("yaml"), f.Tag.Get("flag"), f.Tag.Get("help"), v.Field(i)})
	}
	return all
}

// readFile sets what a file says, and refuses what it should not say.
func readFile(path string, settings []setting) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	if len(doc.Content) == 0 {
		return nil // an empty file sets nothing
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("%w: %s:%d: expected settings, as in \"manifests: /etc/fairlead/services\"", ErrInvalid, path, top.Line)
	}
	var errs []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if err := set(settings, key.Value, value, seen); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s:%d: %s: %w", ErrInvalid, path, key.Line, key.Value, err))
		}
	}
	return errors.Join(errs...)
}

func set(settings []setting, name string, value *yaml.Node, seen map[string]bool) error {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
	if i < 0 {
		names := make([]string, len(settings))
		for i, s := range settings {
			names[i] = s.name
		}
		return fmt.Errorf("no such setting: there are %s", strings.Join(names, ", "))
	}
	if seen[name] {
		return errors.New("is there twice: leave one out")
	}
	seen[name] = true
	return settings[i].decode(value)
}

// decode sets the field to what a file says: a value, or a list of values.
func (s setting) decode(n *yaml.Node) error {
	if !s.isList() {
		v, err := s.parse(n)
		if err == nil {
			s.field.Set(v)
		}
		return err
	}
	if n.Kind != yaml.SequenceNode {
		return fmt.Errorf("a list is expected, as in [%s]", n.Value)
	}
	list := reflect.MakeSlice(s.field.Type(), 0, len(n.Content))
	for _, element := range n.Content {
		v, err := s.parse(element)
		if err != nil {
			return fmt.Errorf("line %d: %w", element.Line, err)
		}
		list = reflect.Append(list, v)
	}
	s.field.Set(list)
	return nil
}

func (s setting) isList() bool { return s.field.Kind() == reflect.Slice }

// parse reads one value of the setting's type, or of its elements'.
func (s setting) parse(n *yaml.Node) (reflect.Value, error) {
	if n.Kind != yaml.ScalarNode {
		return reflect.Value{}, fmt.Errorf("one %s is expected", s.Type())
	}
	t := s.field.Type()
	if s.isList() {
		t = t.Elem()
	}
	into := reflect.New(t)
	plain := yaml.Node{Kind: yaml.ScalarNode, Value: n.Value}
	if t.Kind() == reflect.String {
		plain.Tag = "!!str"
	}
	if err := plain.Decode(into.Interface()); err != nil || n.Value == "" {
		return reflect.Value{}, fmt.Errorf("%q is no %s", n.Value, s.Type())
	}
	return into.Elem(), nil
}

// Type names what the setting takes, for the help and for errors.
func (s setting) Type() string {
	switch s.field.Interface().(type) {
	case netip.Addr, []netip.Addr:
		return "address"
	case []netip.Prefix:
		return "prefix"
	case uint32:
		return "number"
	case bool:
		return "bool"
	case time.Duration:
		return "duration"
	case slog.Level:
		return "level"
	}
	return "name"
}

// flagValue keeps what a flag was given until load applies it.
type flagValue struct {
	setting
	given reflect.Value
}

// Set takes one value; a list's flag may be repeated, or hold commas.
func (v *flagValue) Set(text string) error {
	texts := []string{text}
	if v.isList() {
		texts = strings.Split(text, ",")
	}
	for _, t := range texts {
		one, err := v.parse(&yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimSpace(t)})
		if err != nil {
			return err
		}
		if !v.isList() {
			v.given = one
			continue
		}
		if !v.given.IsValid() {
			v.given = reflect.MakeSlice(v.field.Type(), 0, 1)
		}
		v.given = reflect.Append(v.given, one)
	}
	return nil
}

func (v *flagValue) apply() {
	if v.given.IsValid() {
		v.field.Set(v.given)
	}
}

// String gives the default, for the help.
func (v *flagValue) String() string {
	if v.setting.field.IsValid() && !v.field.IsZero() {
		return strings.Trim(fmt.Sprint(v.field.Interface()), "[]")
	}
	return ""
}

func (c *Common) complete() error {
	if c.Node != "" {
		return nil
	}
	var err error
	if c.Node, err = os.Hostname(); err != nil {
		return fmt.Errorf("%w: node: %w: pass --node", ErrInvalid, err)
	}
	return nil
}

func (a *Agent) complete() error {
	if len(a.Peers) == 0 || len(a.NextHops) > 0 && a.RouterID.IsValid() {
		return a.Common.complete()
	}
	own, err := reachedFrom(a.Peers[0])
	if err != nil {
		return invalid("peers", "%v: is there a route to it?", err)
	}
	if len(a.NextHops) == 0 {
		a.NextHops = []netip.Addr{own}
	}
	return errors.Join(a.Common.complete(), a.BGP.identify(own))
}

func (r *Reflector) complete() error {
	if r.RouterID.IsValid() || len(r.Routers) == 0 {
		return r.Common.complete()
	}
	own, err := reachedFrom(r.Routers[0])
	if err != nil {
		return invalid("routers", "%v: is there a route to it?", err)
	}
	return errors.Join(r.Common.complete(), r.identify(own))
}

func (r *Router) complete() error {
	if r.RouterID.IsValid() || len(r.Peers) == 0 {
		return r.Common.complete()
	}
	own, err := reachedFrom(r.Peers[0])
	if err != nil {
		return invalid("peers", "%v: is there a route to it?", err)
	}
	return errors.Join(r.Common.complete(), r.identify(own))
}

// identify takes this machine's own address as the identifier where none is
// set.
func (b *BGP) identify(own netip.Addr) error {
	if b.RouterID.IsValid() {
		return nil
	}
	if !own.Is4() {
		return invalid("routerID", "%s is no IPv4 address, which BGP identifiers are: pass --router-id", own)
	}
	b.RouterID = own
	return nil
}

// reachedFrom gives the address that this machine has toward another. A UDP
// socket asks the routing table so; no packet leaves.
func reachedFrom(peer netip.Addr) (netip.Addr, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, 179)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}
