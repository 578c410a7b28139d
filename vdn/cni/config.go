package cni

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/fairlead/fairlead/vdn/client"
)

// Defaults and limits of a configuration.
const (
	DefaultDataDir = "/var/lib/cni/fairlead"
	DefaultTimeout = client.DefaultTimeout
	maxTimeout     = time.Minute
)

// Settings are Fairlead's own configuration keys: at the top level for fairlead-cni, in the
// ipam object for fairlead-ipam.
type Settings struct {
	// Network is the controller's name of the network; default is the configuration's name.
	Network string `json:"network"`
	// Controller is the controller's URL.
	Controller string `json:"controller"`
	// TokenFile authenticates the plugin, CAFile verifies the controller.
	TokenFile string `json:"tokenFile"`
	CAFile    string `json:"caFile"`
	// Node is the node's name. The default is the name that the node's daemon uses, or the
	// hostname.
	Node string `json:"node"`
	// DataDir is the directory for attachment notes.
	DataDir string `json:"dataDir"`
}

// Config is the configuration that a call reads from standard input.
type Config struct {
	Settings
	// Name is the configuration's name, to which all of GC's Valid belong.
	Name string
	// Timeout limits all requests of one call.
	Timeout time.Duration
	// DefaultRoute makes the network's gateways the pod's default gateways.
	DefaultRoute bool
	// RuntimeConfig contains the requests of the runtime's user.
	RuntimeConfig RuntimeConfig
	// Valid are the attachments that GC retains: CONTAINER.INTERFACE.
	Valid []string
	// Previous is the result of ADD; nil without one.
	Previous *current.Result
}

// RuntimeConfig contains the values of the capabilities ips and mac, unparsed.
type RuntimeConfig struct {
	IPs []string `json:"ips"`
	MAC string   `json:"mac"`
}

// written is a configuration as decoded from JSON.
type written struct {
	types.PluginConf
	Settings
	Timeout      string `json:"timeout"`
	DefaultRoute *bool  `json:"defaultRoute"`
	IPAM         struct {
		Type string `json:"type"`
		Settings
		Timeout      string `json:"timeout"`
		DefaultRoute *bool  `json:"defaultRoute"`
	} `json:"ipam"`
	RuntimeConfig RuntimeConfig `json:"runtimeConfig"`
}

func invalid(format string, args ...any) error {
	return fail(types.ErrInvalidNetworkConfig, format, args...)
}

// Parse reads the configuration of fairlead-cni.
func Parse(text []byte) (Config, error) {
	w, err := decode(text)
	if err != nil {
		return Config{}, err
	}
	if t := w.IPAM.Type; t != "" && t != "fairlead-ipam" {
		return Config{}, invalid("ipam.type %q: the controller assigns the addresses: remove ipam", t)
	}
	return w.config(w.Settings, w.Timeout, w.DefaultRoute)
}

// ParseIPAM reads the configuration of fairlead-ipam.
func ParseIPAM(text []byte) (Config, error) {
	w, err := decode(text)
	if err != nil {
		return Config{}, err
	}
	if w.IPAM.Type == "" {
		return Config{}, invalid("ipam.type is required: set \"ipam\": {\"type\": \"fairlead-ipam\"}")
	}
	return w.config(w.IPAM.Settings, w.IPAM.Timeout, w.IPAM.DefaultRoute)
}

func decode(text []byte) (*written, error) {
	w := &written{}
	if err := json.Unmarshal(text, w); err != nil {
		return nil, fail(types.ErrDecodingFailure, "configuration: %v: want one JSON object", err)
	}
	if w.RawPrevResult == nil {
		return w, nil
	}
	if err := version.ParsePrevResult(&w.PluginConf); err != nil {
		return nil, fail(types.ErrDecodingFailure, "prevResult: %v", err)
	}
	return w, nil
}

func (w *written) config(s Settings, timeout string, defaultRoute *bool) (Config, error) {
	c := Config{Settings: Settings{
		Network: cmp.Or(s.Network, w.Name), Controller: cmp.Or(s.Controller, client.DefaultURL), TokenFile: s.TokenFile, CAFile: s.CAFile,
		Node: s.Node, DataDir: cmp.Or(s.DataDir, DefaultDataDir),
	}, Name: w.Name, Timeout: DefaultTimeout, DefaultRoute: defaultRoute == nil || *defaultRoute, RuntimeConfig: w.RuntimeConfig}
	if err := c.check(timeout); err != nil {
		return Config{}, err
	}
	for _, v := range w.ValidAttachments {
		c.Valid = append(c.Valid, v.ContainerID+"."+v.IfName)
	}
	if w.PrevResult != nil {
		previous, err := current.NewResultFromResult(w.PrevResult)
		if err != nil {
			return Config{}, fail(types.ErrDecodingFailure, "prevResult: %v", err)
		}
		c.Previous = previous
	}
	return c, nil
}

func (c *Config) check(timeout string) error {
	if timeout != "" {
		d, err := time.ParseDuration(timeout)
		if err != nil || d <= 0 || d > maxTimeout {
			return invalid("timeout %q: want more than 0s and at most %v, such as 5s", timeout, maxTimeout)
		}
		c.Timeout = d
	}
	for field, path := range map[string]string{"dataDir": c.DataDir, "tokenFile": c.TokenFile, "caFile": c.CAFile} {
		if path != "" && !filepath.IsAbs(path) {
			return invalid("%s %q: want an absolute path", field, path)
		}
	}
	if c.Network == "" {
		return invalid("network is required: use a network of the controller (fairlead vdn get networks)")
	}
	return nil
}

// named fills in the node name of a configuration that is for all nodes. Only calls that
// send the name to the controller need it, because it queries the node's daemon, which may
// hang.
func (c *Config) named() error {
	if c.Node == "" {
		c.Node = nodeName()
	}
	if c.Node == "" {
		return invalid("node is required, because this host has no name")
	}
	return nil
}

// read parses the requested addresses and MAC.
func (w RuntimeConfig) read() (addresses []netip.Addr, mac net.HardwareAddr, err error) {
	for _, s := range w.IPs {
		a, err := parseAddress(s)
		if err != nil {
			return nil, nil, invalid("runtimeConfig.ips %q: want an address such as 10.1.0.5 or 10.1.0.5/24", s)
		}
		addresses = append(addresses, a)
	}
	if w.MAC == "" {
		return addresses, nil, nil
	}
	if mac, err = parseMAC(w.MAC); err != nil {
		return nil, nil, invalid("runtimeConfig.mac %q: want a unicast MAC address such as 02:00:00:00:00:05", w.MAC)
	}
	return addresses, mac, nil
}

// parseAddress parses an address or a prefix. The network defines the prefix length.
func parseAddress(s string) (netip.Addr, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr().Unmap(), nil
	}
	a, err := netip.ParseAddr(s)
	return a.Unmap(), err
}

func parseMAC(s string) (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(s)
	if err == nil && (len(mac) != 6 || mac[0]&1 != 0 || bytes.Equal(mac, make([]byte, 6))) {
		err = &net.AddrError{Err: "not a unicast MAC address", Addr: s}
	}
	return mac, err
}

// podArgs is the pod's part of CNI_ARGS.
type podArgs struct {
	// owner is "namespace/pod", or empty; uid is its UID, or empty.
	owner, uid string
	addresses  []netip.Addr
	mac        net.HardwareAddr
}

// parseArgs reads CNI_ARGS, "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b", and ignores unknown keys.
func parseArgs(s string) (podArgs, error) {
	values := map[string]string{}
	for _, pair := range strings.Split(s, ";") {
		key, value, found := strings.Cut(pair, "=")
		if !found && s != "" {
			return podArgs{}, fail(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: %q: want KEY=VALUE;KEY=VALUE", pair)
		}
		values[key] = value
	}
	var p podArgs
	if namespace, name := values["K8S_POD_NAMESPACE"], values["K8S_POD_NAME"]; name != "" {
		p.owner, p.uid = namespace+"/"+name, values["K8S_POD_UID"]
	}
	var err error
	for _, ip := range strings.FieldsFunc(values["IP"], func(r rune) bool { return r == ',' }) { // Multus separates several by commas
		a, err := parseAddress(ip)
		if err != nil {
			return podArgs{}, fail(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: IP=%s: want an address such as 10.1.0.5, or one of each family: 10.1.0.5,fd00::5", values["IP"])
		}
		p.addresses = append(p.addresses, a)
	}
	if mac := values["MAC"]; mac != "" {
		if p.mac, err = parseMAC(mac); err != nil {
			return podArgs{}, fail(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: MAC=%s: want a unicast MAC address such as 02:00:00:00:00:05", mac)
		}
	}
	return p, nil
}
