package importer_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
	"github.com/fairlead/fairlead/source/importer"
	"github.com/fairlead/fairlead/source/importer/ipvsadm"
	"github.com/fairlead/fairlead/source/importer/keepalived"
	"github.com/fairlead/fairlead/source/importer/metallb"
)

// seed adds the inputs of all test cases of a format.
func seed(f *testing.F, format string) {
	stories, _ := filepath.Glob("testdata/*.txtar")
	seeded := 0
	for _, path := range stories {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if !strings.HasPrefix(string(archive.Comment), format) {
			continue
		}
		for _, file := range archive.Files {
			if file.Name != "manifests" && file.Name != "held" && file.Name != "error" {
				f.Add(file.Data)
				seeded++
			}
		}
	}
	if seeded == 0 {
		f.Fatal("no story to begin with")
	}
}

// whatever checks that an input is either rejected with a position in it, or yields valid
// manifests.
func whatever(t *testing.T, r *importer.Result, err error) {
	var syntax *importer.SyntaxError
	switch {
	case err == nil:
		checkResult(t, r)
	case !errors.As(err, &syntax) || syntax.File == "" || syntax.Line < 1 || syntax.Message == "":
		t.Errorf("%v is no syntax error with a place", err)
	}
}

var marks = importer.Marks{}

func init() {
	for _, m := range []string{"1=10.1.1.1:80", "1=10.1.1.2", "3=[2001:db8::1]:5000-6000/udp", "7=10.1.1.7", "8=10.1.1.8:1/sctp"} {
		if err := marks.Set(m); err != nil {
			panic(err)
		}
	}
}

func FuzzKeepalived(f *testing.F) {
	seed(f, "keepalived")
	f.Add([]byte("$A=${A} x\n$A\n"))
	f.Add([]byte("$A= \\\n$A \\\n$A\n$A\n"))
	f.Add([]byte("include self\n\"\" {\n}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		self := keepalived.File{Name: "self", Text: text}
		included := 0
		r, err := keepalived.Read(self, keepalived.Options{
			Marks: marks, ConfigID: "lb1",
			Include: func(string, string) ([]keepalived.File, error) {
				if included++; included > 3 {
					return nil, errors.New("enough")
				}
				return []keepalived.File{self}, nil
			},
		})
		whatever(t, r, err)
	})
}

func FuzzIpvsadm(f *testing.F) {
	seed(f, "ipvsadm")
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		r, err := ipvsadm.Read("rules", text, marks)
		whatever(t, r, err)
	})
}

func FuzzMetallb(f *testing.F) {
	seed(f, "metallb")
	f.Add([]byte("a: &a [*a]\nkind: Service\n"))
	f.Add([]byte("kind: List\nitems: &i\n- {kind: List, items: *i}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		r, err := metallb.Read([]metallb.File{{Name: "all.yaml", Text: text}})
		whatever(t, r, err)
	})
}

// FuzzMarks checks that a parsed mark survives a round trip.
func FuzzMarks(f *testing.F) {
	for _, text := range []string{"1=10.1.1.1:80", "0x10=10.1.1.1:80/SCTP", "2=[2001:db8::1]:53-99/udp", "3=2001:db8::1", "x=", "1=10.1.1.1:80-", "1=[10.1.1.1]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fuzzlimit.Time(t)
		m := importer.Marks{}
		if err := m.Set(text); err != nil {
			if len(m) > 0 {
				t.Errorf("%q is refused (%v) and taken as %v", text, err, m)
			}
			return
		}
		for mark, all := range m {
			l, again := all[0], importer.Marks{}
			where := l.Addr.String()
			if l.Port != 0 {
				where = netip.AddrPortFrom(l.Addr, l.Port).String()
				if l.Last != 0 {
					where += fmt.Sprintf("-%d", l.Last)
				}
				where += "/" + l.Protocol.String()
			}
			if err := again.Set(fmt.Sprintf("%d=%s", mark, where)); err != nil || !reflect.DeepEqual(again, m) {
				t.Errorf("%q is %v, and %s is %v, %v", text, m, where, again, err)
			}
		}
	})
}

func TestMarks(t *testing.T) {
	for text, want := range map[string]string{
		"1=10.1.1.1:80":              "TCP 10.1.1.1:80",
		"0x10=10.1.1.1:80/SCTP":      "SCTP 10.1.1.1:80",
		"2=[2001:db8::1]:53-99/udp":  "UDP [2001:db8::1]:53-99",
		"3=2001:db8::1":              "any [2001:db8::1]:0",
		"10.1.1.1:80":                "! is not a mark with its address",
		"x=10.1.1.1:80":              "! is not a mark with its address",
		"1=web:80":                   "! is not an address with a port",
		"1=10.1.1.1:0":               "! is not an address with a port",
		"1=10.1.1.1:80/icmp":         `! "icmp" is none of`,
		"1=10.1.1.1:90-80":           "! want the lower port first",
		"1=127.0.0.1:80":             "! is not a unicast address",
		"1=224.0.0.1":                "! is not a unicast address",
		"1=10.1.1.1:80-":             "! is not a range",
		"99999999999=10.1.1.1:80":    "! is not a mark with its address",
		"1=10.1.1.1:80-99999999/udp": "! is not a range",
	} {
		m := importer.Marks{}
		err := m.Set(text)
		if refused, ok := strings.CutPrefix(want, "! "); ok {
			if err == nil || !strings.Contains(err.Error(), refused) {
				t.Errorf("%s: error %v, want %s", text, err, refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for _, listeners := range m {
			if len(listeners) != 1 || listeners[0].String() != want {
				t.Errorf("%s: %v, want %s", text, listeners, want)
			}
		}
	}
}
