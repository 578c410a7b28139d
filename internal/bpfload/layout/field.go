package layout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// MarshalText formats a field as one line, "24+8 way[8*16].tag": offset and size in bytes,
// the name with the count and stride of each array, and an enum's values.
func (f Field) MarshalText() ([]byte, error) {
	name := f.Name
	for _, r := range f.Repeat {
		name = strings.Replace(name, "[]", fmt.Sprintf("[%d*%d]", r.Count, r.Stride), 1)
	}
	text := strings.TrimSpace(fmt.Sprintf("%d+%d %s", f.Offset, f.Size, name))
	if f.Values != nil {
		text += " {" + valuesText(f.Values) + "}"
	}
	return []byte(text), nil
}

// valuesText formats the values of an enum in order.
func valuesText(values map[string]uint64) string {
	var all []string
	for _, name := range slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(cmp.Compare(values[a], values[b]), cmp.Compare(a, b))
	}) {
		all = append(all, fmt.Sprintf("%s=%d", name, values[name]))
	}
	return strings.Join(all, " ")
}

// UnmarshalText parses what MarshalText writes.
func (f *Field) UnmarshalText(text []byte) error {
	*f = Field{}
	line, values, isEnum := strings.Cut(strings.TrimSuffix(string(text), "}"), " {")
	place, name, _ := strings.Cut(line, " ")
	if _, err := fmt.Sscanf(place, "%d+%d", &f.Offset, &f.Size); err != nil {
		return fmt.Errorf("field %q: want OFFSET+SIZE NAME: %w", text, err)
	}
	if isEnum {
		f.Values = map[string]uint64{}
	}
	for _, v := range strings.Fields(values) {
		value, number, _ := strings.Cut(v, "=")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return fmt.Errorf("field %q: %w", text, err)
		}
		f.Values[value] = n
	}
	return f.parseName(name)
}

// parseName extracts the arrays from a name.
func (f *Field) parseName(name string) error {
	for {
		before, rest, found := strings.Cut(name, "[")
		f.Name += before
		if !found {
			return nil
		}
		var r Repeat
		inside, after, _ := strings.Cut(rest, "]")
		if _, err := fmt.Sscanf(inside, "%d*%d", &r.Count, &r.Stride); err != nil {
			return fmt.Errorf("field %q: want NAME[COUNT*STRIDE]: %w", name, err)
		}
		f.Repeat = append(f.Repeat, r)
		f.Name += "[]"
		name = after
	}
}
