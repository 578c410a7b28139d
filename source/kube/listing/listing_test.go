package listing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// encoded returns a list of n slices as an API server encodes it, and as the library
// decodes it.
func encoded(t testing.TB, n int) (*discoveryv1.EndpointSliceList, []byte) {
	full := &discoveryv1.EndpointSliceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"},
	}
	for i := range n {
		s := discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
		s.Name, s.Endpoints = fmt.Sprintf("web-%d", i), []discoveryv1.Endpoint{{Addresses: []string{"10.200.0.1"}}, {Addresses: []string{"10.200.0.2"}}}
		s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 300*i))}}
		full.Items = append(full.Items, s)
	}
	scheme := runtime.NewScheme()
	if err := discoveryv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	text, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), full)
	if err != nil {
		t.Fatal(err)
	}
	var unknown runtime.Unknown
	list := &discoveryv1.EndpointSliceList{}
	if err := errors.Join(unknown.Unmarshal(text[4:]), list.Unmarshal(unknown.Raw)); err != nil {
		t.Fatal(err)
	}
	return list, text
}

// read reads a list of slices.
func read(from io.Reader) (metav1.ListMeta, []discoveryv1.EndpointSlice, error) {
	var items []discoveryv1.EndpointSlice
	meta, err := Read(from, func(text []byte) error {
		var s discoveryv1.EndpointSlice
		err := s.Unmarshal(text)
		items = append(items, s)
		return err
	})
	return meta, items, err
}

func TestRead(t *testing.T) {
	for _, n := range []int{0, 1, 50} {
		want, text := encoded(t, n)
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(text), "in bytes": iotest.OneByteReader(bytes.NewReader(text))} {
			meta, items, err := read(r)
			if err != nil || meta != want.ListMeta || !reflect.DeepEqual(items, want.Items) {
				t.Errorf("%s: %d items: got %v, %d items, %v", name, n, meta, len(items), err)
			}
		}
		// A truncated list is rejected, wherever it ends. What follows the items is
		// optional.
		for end := 0; end < len(text)-8; end += 1 + n*n {
			if _, _, err := read(bytes.NewReader(text[:end])); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%d of %d bytes: %v, want an unexpected end", end, len(text), err)
			}
		}
	}
	for _, bad := range []string{"{\"kind\":\"List\"}", "k8s\x00\x09", "k8s\x00\x12\x05\x12\x07abc", "k8s\x00\x12\xff\xff\xff\xff\x0f\x12\xff\xff\xff\xff\x07"} {
		if _, _, err := read(bytes.NewReader([]byte(bad))); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// FuzzRead compares the reader with the library: what both accept must be equal, and no
// input may cause a panic or unbounded memory use.
func FuzzRead(f *testing.F) {
	for n := range 3 {
		_, text := encoded(f, n)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzlimit.Time(t)
		meta, items, err := read(bytes.NewReader(text))
		if err != nil || len(text) < 4 {
			return
		}
		var unknown runtime.Unknown
		var list discoveryv1.EndpointSliceList
		if err := unknown.Unmarshal(text[4:]); err != nil {
			return // fields that are skipped here may be invalid
		}
		if err := list.Unmarshal(unknown.Raw); err != nil {
			return
		}
		if len(items) < len(list.Items) {
			t.Errorf("%d items, the library has %d (%v)", len(items), len(list.Items), meta)
		}
	})
}
