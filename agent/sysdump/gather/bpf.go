package gather

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// dumped are the maps whose contents are dumped, by their C names. Others hold keys, or
// connections of clients.
var dumped = []string{
	"frontends", "port_ranges", "vip_bits", "nat_bits", "servers", "members", "chains", "balancers", "handover_peers", "guard_ranges", "guard_limits", "own_macs",
	"device_macs", "tx_ports", "source_ranges", "local_vips", "next_servers", "services", "targets", "node_addresses", "packet_macs", "packet_masks", "packet_bridges",
	"vdn_prefixes", "vdn_reach", "vdn_outside", "vdn_namespaces",
}

// maxEntries limits the entries of a map.
const maxEntries = 5000

// pinVersion is what a pin's name has after that of the map.
var pinVersion = regexp.MustCompile(`-\d+$`)

// bpf describes pinned programs, maps and links, and dumps maps.
func (c *collector) bpf() {
	folders := []string{filepath.Join(c.Options.Doctor.BPFFS, "fairlead")}
	for _, d := range c.daemons {
		for _, dir := range d.flags["bpffs"] {
			folders = append(folders, filepath.Join(dir, "fairlead"))
		}
	}
	slices.Sort(folders)
	var pins strings.Builder
	for _, folder := range slices.Compact(folders) {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				c.pin(&pins, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.missed["machine/bpf "+folder] = err
		}
	}
	c.machine["bpf/pins.txt"] = []byte(pins.String())
}

// pin describes one pin.
func (c *collector) pin(to *strings.Builder, path string) {
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		m, err = ebpf.LoadPinnedMap(path, nil)
	}
	if err == nil {
		defer m.Close()
		fmt.Fprintf(to, "%s: %s\n", path, m)
		name := pinVersion.ReplaceAllString(filepath.Base(path), "")
		if slices.Contains(dumped, name) {
			c.machine[filepath.Join("bpf", strings.ReplaceAll(strings.Trim(path, "/"), "/", "_")+".txt")] = contents(m)
		}
		return
	}
	p, err := ebpf.LoadPinnedProgram(path, nil)
	if err != nil {
		fmt.Fprintf(to, "%s: a link, or not readable\n", path)
		return
	}
	defer p.Close()
	if info, err := p.Info(); err == nil {
		id, _ := info.ID()
		fmt.Fprintf(to, "%s: program %d %s, tag %s\n", path, id, info.Name, info.Tag)
	}
}

// contents returns the entries of a map, in hexadecimal.
func contents(m *ebpf.Map) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, key value\n", m)
	var key, value []byte
	used := 0
	for it := m.Iterate(); it.Next(&key, &value); {
		if m.Type() == ebpf.Array && slices.Max(value) == 0 {
			continue // an unused entry
		}
		if used++; used > maxEntries {
			fmt.Fprintf(&b, "and more\n")
			break
		}
		fmt.Fprintf(&b, "%x %x\n", key, value)
	}
	return []byte(b.String())
}
