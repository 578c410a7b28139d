package etcd

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// described has the answers as the protobuf library reads them, for comparison. Fields are
// optional as in proto2, which distinguishes an absent one from zero.
var described = describe(map[string][]*descriptorpb.FieldDescriptorProto{
	"Header":        {of("revision", 3, number)},
	"KeyValue":      {of("key", 1, text), of("mod_revision", 3, number), of("value", 5, text)},
	"Range":         {of("header", 1, "Header"), many("kvs", 2, "KeyValue"), of("more", 3, boolean)},
	"ResponseOp":    {of("range", 1, "Range")},
	"Txn":           {of("succeeded", 2, boolean), many("responses", 3, "ResponseOp")},
	"Event":         {of("type", 1, number), of("kv", 2, "KeyValue")},
	"Watch":         {of("canceled", 4, boolean), of("compact_revision", 5, number), of("reason", 6, text), many("events", 11, "Event")},
	"Lease":         {of("ID", 2, number), of("TTL", 3, number)},
	"Authenticated": {of("token", 2, text)},
})

// Types of fields; any other is a message.
const (
	number  = "int64"
	boolean = "bool"
	text    = "bytes"
)

func of(name string, id int32, kind string) *descriptorpb.FieldDescriptorProto {
	f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &id, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	switch kind {
	case number:
		f.Type = descriptorpb.FieldDescriptorProto_TYPE_INT64.Enum()
	case boolean:
		f.Type = descriptorpb.FieldDescriptorProto_TYPE_BOOL.Enum()
	case text:
		f.Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()
	default:
		f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".t."+kind)
	}
	return f
}

func many(name string, id int32, kind string) *descriptorpb.FieldDescriptorProto {
	f := of(name, id, kind)
	f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	return f
}

func describe(all map[string][]*descriptorpb.FieldDescriptorProto) protoreflect.MessageDescriptors {
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("t.proto"), Package: proto.String("t"), Syntax: proto.String("proto2")}
	for name, fields := range all {
		file.MessageType = append(file.MessageType, &descriptorpb.DescriptorProto{Name: &name, Field: fields})
	}
	f, err := protodesc.NewFile(file, nil)
	if err != nil {
		panic(err)
	}
	return f.Messages()
}

// reading is a message read by the protobuf library.
type reading struct{ protoreflect.Message }

func (r reading) field(name string) protoreflect.Value {
	return r.Get(r.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

func (r reading) has(name string) bool {
	return r.Has(r.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

func (r reading) number(name string) int64 { return r.field(name).Int() }
func (r reading) yes(name string) bool     { return r.field(name).Bool() }
func (r reading) text(name string) string  { return string(r.field(name).Bytes()) }
func (r reading) in(name string) reading   { return reading{r.field(name).Message()} }
func (r reading) each(name string, do func(reading)) {
	for i, l := 0, r.field(name).List(); i < l.Len(); i++ {
		do(reading{l.Get(i).Message()})
	}
}

func (r reading) pair() pair {
	return pair{key: r.text("key"), value: append([]byte{}, r.text("value")...), at: r.number("mod_revision")}
}

func (r reading) listed(l *listed) {
	if h := r.in("header"); h.has("revision") {
		l.at = h.number("revision")
	}
	if r.has("more") {
		l.more = r.yes("more")
	}
	r.each("kvs", func(r reading) { l.pairs = append(l.pairs, r.pair()) })
}

func (r reading) decided() (d decided) {
	d.yes = r.yes("succeeded")
	r.each("responses", func(r reading) { r.in("range").listed(&d.read) })
	return d
}

func (r reading) watched() watched {
	w := watched{canceled: r.yes("canceled"), compacted: r.number("compact_revision"), reason: r.text("reason")}
	r.each("events", func(r reading) {
		w.changes = append(w.changes, change{pair: r.in("kv").pair(), deleted: r.number("type") == 1})
	})
	return w
}

// answers has all kinds, each as the protobuf library reads it.
var answers = []struct {
	name  string
	fresh func() answer
	read  func(reading) answer
}{
	{"Range", func() answer { return &listed{} }, func(r reading) answer { l := listed{}; r.listed(&l); return &l }},
	{"Txn", func() answer { return &decided{} }, func(r reading) answer { d := r.decided(); return &d }},
	{"Watch", func() answer { return &watched{} }, func(r reading) answer { w := r.watched(); return &w }},
	{"Lease", func() answer { return &granted{} }, func(r reading) answer { return &granted{r.number("ID"), r.number("TTL")} }},
	{"Authenticated", func() answer { return new(token) }, func(r reading) answer { t := token(r.text("token")); return &t }},
}

// compare reads bytes as each kind of answer with both implementations.
func compare(t *testing.T, b []byte) {
	t.Helper()
	for _, a := range answers {
		got := a.fresh()
		err := got.parse(b)
		m := dynamicpb.NewMessage(described.ByName(protoreflect.Name(a.name)))
		if wantErr := proto.Unmarshal(b, m); (err == nil) != (wantErr == nil) {
			t.Errorf("%s of % x: %v, protobuf's library says: %v", a.name, b, err, wantErr)
			continue
		}
		if err != nil {
			continue
		}
		if want := a.read(reading{m}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s of % x is read as %+v, by protobuf's library as %+v", a.name, b, got, want)
		}
	}
}

// samples are answers as etcd sends them, including unused fields.
func samples() map[string]message {
	header := message(nil).number(1, 7).number(2, 8).number(3, 42).number(4, 2)
	kv := message(nil).text(1, "/a/networks/x").number(2, 5).number(3, 41).number(4, 9).text(5, "{}").number(6, 3)
	gone := message(nil).text(1, "/a/networks/y").number(3, 42)
	list := message(nil).inner(1, header).inner(2, kv).inner(2, gone).number(3, 1).number(4, 2)
	return map[string]message{
		"nothing":   nil,
		"list":      list,
		"done":      message(nil).inner(1, header).number(2, 1).inner(3, message(nil).inner(2, message(nil).inner(1, header))),
		"refused":   message(nil).inner(1, header).inner(3, message(nil).inner(1, list)),
		"created":   message(nil).inner(1, header).number(2, 1).number(3, 1),
		"changes":   message(nil).inner(1, header).inner(11, message(nil).inner(2, kv)).inner(11, message(nil).number(1, 1).inner(2, gone)),
		"compacted": message(nil).inner(1, header).number(4, 1).number(5, 40).text(6, "compacted"),
		"granted":   message(nil).inner(1, header).number(2, -6).number(3, 3),
		"token":     message(nil).inner(1, header).text(2, "abc.12"),
	}
}

// TestAnswers reads what etcd sends, complete and truncated at every byte.
func TestAnswers(t *testing.T) {
	all := samples()
	for _, b := range all {
		for n := range len(b) + 1 {
			compare(t, b[:n])
		}
	}
	var w watched
	if err := w.parse(all["changes"]); err != nil {
		t.Fatal(err)
	}
	want := []change{{pair: pair{"/a/networks/x", []byte("{}"), 41}}, {pair: pair{"/a/networks/y", []byte{}, 42}, deleted: true}}
	if d := cmp.Diff(want, w.changes, cmp.AllowUnexported(change{}, pair{})); d != "" {
		t.Error(d)
	}
}

// FuzzAnswers checks that arbitrary input is read or rejected as by the protobuf library.
func FuzzAnswers(f *testing.F) {
	for _, b := range samples() {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzlimit.Time(t)
		compare(t, b)
	})
}
