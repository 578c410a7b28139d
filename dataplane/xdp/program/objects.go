package program

import (
	"errors"
	"reflect"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// Objects are the attached program, the generated maps, and the maps of the settings,
// routes and authentication keys. The table of steps refers to the other programs.
type Objects struct {
	Balancer *ebpf.Program `ebpf:"balancer"`
	bpf.BalancerMaps
	bpf.BalancerVariables
	Settings *ebpf.Map `ebpf:".data.settings"`
	Routes   *ebpf.Map `ebpf:".data.routes"`
	AuthData *ebpf.Map `ebpf:".data.auth"`
}

// Close closes all.
func (k *Objects) Close() error {
	return errors.Join(k.Balancer.Close(), k.BalancerMaps.Close(), k.Settings.Close(), k.Routes.Close(), k.AuthData.Close())
}

// Names of maps of variables that the agent changes while the programs run.
const (
	SettingsSection = ".data.settings"
	RoutesSection   = ".data.routes"
)

// ByName returns the maps of a generated object, by their names in C.
func ByName(maps any) map[string]*ebpf.Map {
	byName := map[string]*ebpf.Map{}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(maps)) {
		if name := f.Tag.Get("ebpf"); name != "" {
			byName[name] = reflect.ValueOf(maps).FieldByIndex(f.Index).Interface().(*ebpf.Map)
		}
	}
	return byName
}
