package refuse

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ args, rules, command string }{
		{"map:ringbuf=EPERM -- true", "map:ringbuf=EPERM", "true"},
		{"map:LRU_Hash=eperm prog:xdp=22 /tmp/a.test -test.v", "map:lru_hash=EPERM prog:xdp=EINVAL", "/tmp/a.test -test.v"},
		{"cmd:btf_load=ENOSYS -- map:ringbuf=EPERM --", "cmd:btf_load=ENOSYS", "map:ringbuf=EPERM --"},
		{"netlink:generic:IPVS=ENOENT kfunc:*=ENOTSUPP ./a:b=c", "netlink:generic:ipvs=ENOENT kfunc:*=524", "./a:b=c"},
		{"helper:d_path=EOPNOTSUPP attach:cgroupinetingress=4095 env a=b", "helper:d_path=ENOTSUP attach:cgroupinetingress=4095", "env a=b"},
	} {
		rules, command, err := Parse(strings.Fields(c.args))
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
		}
		var got []string
		for _, r := range rules {
			got = append(got, r.String())
		}
		if d := cmp.Diff(strings.Fields(c.rules), got) + cmp.Diff(strings.Fields(c.command), command); d != "" {
			t.Errorf("%s: -want +got:\n%s", c.args, d)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for args, want := range map[string]string{
		"":                               "no rules",
		"true":                           "no rules",
		"map:ringbuf=EPERM":              "no command",
		"map:ringbuf=EPERM --":           "no command",
		"map:ringbuf true":               "no errno",
		"mapp:ringbuf=EPERM true":        "unknown kind \"mapp\", known are:\n  prog ",
		"map:ringbuff=EPERM true":        "unknown map \"ringbuff\", known are: arena, array, ",
		"map:windowshash=EPERM true":     "unknown map",
		"prog:xpd=EPERM true":            "unknown prog \"xpd\", known are: cgroupdevice, ",
		"attach:none=EPERM true":         "unknown attach \"none\", known are: cgroupdevice, ",
		"helper:output=EPERM true":       "unknown helper \"output\", known are: bind, ",
		"kfunc:bpf_ct_release=1 true":    "unknown kfunc \"bpf_ct_release\", known are: *",
		"cmd:prog_run=EPERM true":        "unknown cmd \"prog_run\", known are: btf_get_fd_by_id, ",
		"xdpmode:offload=EPERM true":     "unknown xdpmode \"offload\", known are: native, generic",
		"netlink:route=EPERM true":       "unknown netlink \"route\", known are: inet-diag, ",
		"netlink:generic:=EPERM true":    "unknown netlink",
		"map:ringbuf=EPREM true":         "unknown errno \"EPREM\"",
		"map:ringbuf=0 true":             "unknown errno \"0\"",
		"map:ringbuf=4096 true":          "unknown errno \"4096\"",
		"map:ringbuf=EPERM map:x=1 true": "unknown map \"x\"",
	} {
		if _, _, err := Parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

// TestNames detects changes of the library's names.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		names names
		name  string
		want  []uint32
	}{
		{programTypes(), "schedcls", []uint32{3}},
		{programTypes(), "cgroupsockaddr", []uint32{18}},
		{mapTypes(), "ringbuf", []uint32{27}},
		{mapTypes(), "cgroupstorage", []uint32{19, 32}}, // CGroupStorage and CgroupStorage
		{attachTypes(), "cgroupinetingress", []uint32{0}},
		{attachTypes(), "cgroupinet4getpeername", []uint32{29}},
		{attachTypes(), "tcxegress", []uint32{47}},
		{helpers(), "perf_event_output", []uint32{25}},
		{helpers(), "PerfEventOutput", []uint32{25}},
		{helpers(), "csum_diff", []uint32{28}},
		{commands(), "iter_create", []uint32{33}},
		{commands(), "token_create", []uint32{36}},
	} {
		if got := c.names.find(c.name); !slices.Equal(got, c.want) {
			t.Errorf("%s is %v, want %v", c.name, got, c.want)
		}
	}
}
