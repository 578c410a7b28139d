package refuse

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// names are the values of a kernel enumeration by name. Two values can have the same name
// in lower case: a rule with that name applies to both.
type names map[string][]uint32

// enumerate lists the values from first that String knows. Values of Windows
// are far above.
func enumerate(first, limit uint32, text func(uint32) string) names {
	all := names{}
	for v := first; v < limit; v++ {
		if s := text(v); !strings.Contains(s, "(") {
			all[s] = append(all[s], v)
		}
	}
	return all
}

// find ignores case and underscores: lru_hash is lruhash.
func (n names) find(name string) []uint32 {
	for known, values := range n {
		if squeeze(known) == squeeze(name) {
			return values
		}
	}
	return nil
}

func squeeze(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "") }

func (n names) list() []string { return slices.Sorted(maps.Keys(n)) }

func programTypes() names {
	return enumerate(1, 64, func(v uint32) string { return strings.ToLower(ebpf.ProgramType(v).String()) })
}

func mapTypes() names {
	return enumerate(1, 64, func(v uint32) string { return strings.ToLower(ebpf.MapType(v).String()) })
}

// attachTypes has a separate name for 0, which String calls "None".
func attachTypes() names {
	all := enumerate(1, 96, func(v uint32) string { return strings.ToLower(ebpf.AttachType(v).String()) })
	all["cgroupinetingress"] = []uint32{uint32(ebpf.AttachCGroupInetIngress)}
	return all
}

var capital = regexp.MustCompile(`[A-Z]+[a-z0-9]*`)

// helpers are in snake case, nearly as in the kernel: FnPerfEventOutput is
// perf_event_output.
func helpers() names {
	return enumerate(1, 512, func(v uint32) string {
		name := strings.TrimPrefix(asm.BuiltinFunc(v).String(), "Fn")
		if strings.Contains(name, "(") {
			return name
		}
		return strings.ToLower(strings.Join(capital.FindAllString(name, -1), "_"))
	})
}

// commands are those of bpf(2). Package unix lacks the last ones.
func commands() names {
	all := names{}
	for v, name := range []string{
		unix.BPF_MAP_CREATE: "map_create", unix.BPF_MAP_LOOKUP_ELEM: "map_lookup_elem", unix.BPF_MAP_UPDATE_ELEM: "map_update_elem",
		unix.BPF_MAP_DELETE_ELEM: "map_delete_elem", unix.BPF_MAP_GET_NEXT_KEY: "map_get_next_key", unix.BPF_PROG_LOAD: "prog_load",
		unix.BPF_OBJ_PIN: "obj_pin", unix.BPF_OBJ_GET: "obj_get", unix.BPF_PROG_ATTACH: "prog_attach", unix.BPF_PROG_DETACH: "prog_detach",
		unix.BPF_PROG_TEST_RUN: "prog_test_run", unix.BPF_PROG_GET_NEXT_ID: "prog_get_next_id", unix.BPF_MAP_GET_NEXT_ID: "map_get_next_id",
		unix.BPF_PROG_GET_FD_BY_ID: "prog_get_fd_by_id", unix.BPF_MAP_GET_FD_BY_ID: "map_get_fd_by_id",
		unix.BPF_OBJ_GET_INFO_BY_FD: "obj_get_info_by_fd", unix.BPF_PROG_QUERY: "prog_query",
		unix.BPF_RAW_TRACEPOINT_OPEN: "raw_tracepoint_open", unix.BPF_BTF_LOAD: "btf_load", unix.BPF_BTF_GET_FD_BY_ID: "btf_get_fd_by_id",
		unix.BPF_TASK_FD_QUERY: "task_fd_query", unix.BPF_MAP_LOOKUP_AND_DELETE_ELEM: "map_lookup_and_delete_elem",
		unix.BPF_MAP_FREEZE: "map_freeze", unix.BPF_BTF_GET_NEXT_ID: "btf_get_next_id", unix.BPF_MAP_LOOKUP_BATCH: "map_lookup_batch",
		unix.BPF_MAP_LOOKUP_AND_DELETE_BATCH: "map_lookup_and_delete_batch", unix.BPF_MAP_UPDATE_BATCH: "map_update_batch",
		unix.BPF_MAP_DELETE_BATCH: "map_delete_batch", unix.BPF_LINK_CREATE: "link_create", unix.BPF_LINK_UPDATE: "link_update",
		unix.BPF_LINK_GET_FD_BY_ID: "link_get_fd_by_id", unix.BPF_LINK_GET_NEXT_ID: "link_get_next_id",
		unix.BPF_ENABLE_STATS: "enable_stats", unix.BPF_ITER_CREATE: "iter_create", unix.BPF_LINK_DETACH: "link_detach",
		unix.BPF_PROG_BIND_MAP: "prog_bind_map", 36: "token_create", 37: "prog_stream_read_by_fd", 38: "prog_assoc_struct_ops",
	} {
		if name == "" {
			panic(fmt.Sprintf("command %d of bpf(2) has no name", v))
		}
		all[name] = []uint32{uint32(v)}
	}
	return all
}
