package importer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/source/importer"
	"github.com/fairlead/fairlead/source/importer/ipvsadm"
	"github.com/fairlead/fairlead/source/importer/keepalived"
	"github.com/fairlead/fairlead/source/importer/metallb"
)

// hostileTime limits the time for the worst megabyte of text, which takes less than a
// second.
const hostileTime = 20 * time.Second

func quickly(t *testing.T, read func() (*importer.Result, error)) error {
	t.Helper()
	start := time.Now()
	_, err := read()
	if took := time.Since(start); took > hostileTime {
		t.Errorf("it takes %s", took)
	}
	return err
}

// TestKeepalivedLimits checks that each text is rejected with its position and the limit.
func TestKeepalivedLimits(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	for name, c := range map[string]struct{ text, want string }{
		"long line":         {"a\n" + strings.Repeat("x", 70_000), "self:2: a line of more than 65536 bytes"},
		"brackets":          {strings.Repeat("${", 500_000), "self:1: a line of more than 65536 bytes"},
		"lines repeated":    {"$A=" + long + "\n~SEQ(i, 90000) a $A\n", "self:2: definitions and includes come to more than 67108864 bytes"},
		"definition":        {"$A= \\\n" + long + "\\\n" + long, "self:3: definition A has more than 65536 bytes"},
		"definition used":   {"$A= \\\n" + long + "\\\na\n~SEQ(i, 40000) $A\n", "self:4: definitions and includes come to more than 67108864 bytes"},
		"too many lines":    {"~SEQ(i, 200000) a\n", "self:1: definitions and includes come to more than 100000 lines"},
		"of itself":         {"$A=x $A\n$A", "self:2: a definition of itself"},
		"nested blocks":     {strings.Repeat("a {\n", 100), "blocks are nested deeper than 50"},
		"include in a loop": {"include self", "files include each other more than 16 deep"},
		"include, twice":    {strings.Repeat("#", 60_000) + "\ninclude self\ninclude self", "files include each other more than 16 deep"},
	} {
		t.Run(name, func(t *testing.T) {
			self := keepalived.File{Name: "self", Text: []byte(c.text)}
			err := quickly(t, func() (*importer.Result, error) {
				return keepalived.Read(self, keepalived.Options{Include: func(string, string) ([]keepalived.File, error) { return []keepalived.File{self}, nil }})
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %.200v, want %s", err, c.want)
			}
		})
	}
}

// TestKeepalivedIncludesAreBounded includes the same file repeatedly: it is read only a
// bounded number of times.
func TestKeepalivedIncludesAreBounded(t *testing.T) {
	big := keepalived.File{Name: "big", Text: []byte(strings.Repeat("# "+strings.Repeat("x", 1000)+"\n", 1000))}
	given := 0
	err := quickly(t, func() (*importer.Result, error) {
		return keepalived.Read(keepalived.File{Name: "self", Text: []byte(strings.Repeat("include big\n", 50_000))}, keepalived.Options{
			Include: func(string, string) ([]keepalived.File, error) { given++; return []keepalived.File{big}, nil },
		})
	})
	if err == nil || !strings.Contains(err.Error(), "come to more than 67108864 bytes") || given > 100 {
		t.Errorf("included %d times: %v", given, err)
	}
}

// TestMetallbAliases checks that an item of a list may be an alias, and that nested aliases
// are bounded.
func TestMetallbAliases(t *testing.T) {
	const n = 20_000
	service := "&s {kind: Service, metadata: {name: a, annotations: {x: " + strings.Repeat("y", 20_000) + "}}}"
	for name, c := range map[string]struct{ text, want string }{
		"lists":   {"kind: List\nitems:\n- &a {kind: List, items: [" + strings.Repeat("{a: b},", n) + "]}\n" + strings.Repeat("- *a\n", n), "all.yaml:3: the aliases of this text unfold"},
		"objects": {"kind: List\nitems:\n- " + service + "\n" + strings.Repeat("- *s\n", n), "the aliases of this text unfold"},
		"itself":  {"kind: Service\na: &a [*a]\n", "all.yaml:1: the aliases of this text unfold"},
		"depth":   {"kind: Service\na: " + strings.Repeat("[", 300) + strings.Repeat("]", 300), "all.yaml:2: nested deeper than 200"},
		"few":     {"kind: List\nitems:\n- &a {kind: ConfigMap, metadata: {name: a}}\n- *a\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := quickly(t, func() (*importer.Result, error) {
				return metallb.Read([]metallb.File{{Name: "all.yaml", Text: []byte(c.text)}})
			})
			var syntax *importer.SyntaxError
			if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &syntax) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestTime reads long texts. If the time were quadratic in the size, they would take
// minutes.
func TestTime(t *testing.T) {
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "%", fmt.Sprintf("%d.%d", i>>8&255, i&255)))
		}
		return b.String()
	}
	keep := func(text string) (*importer.Result, error) {
		return keepalived.Read(keepalived.File{Name: "k", Text: []byte(text)}, keepalived.Options{})
	}
	save := func(text string) (*importer.Result, error) { return ipvsadm.Read("i", []byte(text), nil) }
	metal := func(text string) (*importer.Result, error) {
		return metallb.Read([]metallb.File{{Name: "m.yaml", Text: []byte(text)}})
	}
	const n = 20_000
	for name, c := range map[string]struct {
		read func(string) (*importer.Result, error)
		text string
	}{
		"keepalived, servers":      {keep, "virtual_server 10.1.1.1 80 {\n" + many(n, " real_server 10.0.% 80 {\n }\n") + "}\n"},
		"keepalived, services":     {keep, many(n, "virtual_server 10.0.% 80 {\n}\n")},
		"keepalived, same service": {keep, strings.Repeat("virtual_server 10.1.1.1 80 {\n}\n", n)},
		"keepalived, brackets":     {keep, strings.Repeat(strings.Repeat("${", 32_000)+"\n", 100)},
		"keepalived, definition":   {keep, strings.Repeat("$A= \\\n"+strings.Repeat("\\\n", 60_000)+"x\n", 8)},
		"ipvsadm, servers":         {save, "-A -t 10.1.1.1:80\n" + many(n, "-a -t 10.1.1.1:80 -r 10.0.%:80 -m\n")},
		"ipvsadm, services":        {save, many(n, "-A -t 10.0.%:80\n")},
		"ipvsadm, options":         {save, "-A -t 10.1.1.1:80 " + strings.Repeat("-x ", 20*n)},
		"metallb, pools":           {metal, many(n/4, "---\napiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: p%}\nspec: {addresses: [10.%.0/24]}\n")},
		"metallb, services":        {metal, many(n/4, "---\nkind: Service\nmetadata: {name: p%}\nspec: {type: LoadBalancer, ports: [{port: 80}]}\n")},
		"metallb, advertisements":  {metal, many(n/4, "---\napiVersion: metallb.io/v1beta1\nkind: BGPAdvertisement\nmetadata: {name: p%}\nspec: {ipAddressPools: [p%]}\n")},
	} {
		t.Run(name, func(t *testing.T) { _ = quickly(t, func() (*importer.Result, error) { return c.read(c.text) }) })
	}
}
