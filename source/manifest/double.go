package manifest

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/source/object"
)

// unique sorts objects by key and leaves one of each: the one that was used already;
// where none was, the older; where that is not known, the first. It remembers which
// were used.
func (d *folder) unique(objects []*object.Object) (out []*object.Object, problems []problem.Problem) {
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b *object.Object) int { return a.Key.Compare(b.Key) })
	losers := map[*object.Object]bool{}
	used := d.used()
	for first := 0; first < len(objects); {
		end := first + 1
		for end < len(objects) && objects[end].Key == objects[first].Key {
			end++
		}
		winner := choose(objects[first:end], used)
		for _, o := range objects[first:end] {
			if o != winner {
				losers[o] = true
				problems = append(problems, twice(o, winner, used(winner)))
			}
		}
		out = append(out, winner)
		first = end
	}
	d.inUse = make(map[object.Key]string, len(out))
	for _, o := range out {
		d.inUse[o.Key] = o.File
	}
	d.noteUnused(losers)
	return out, problems
}

// choose gives the one of several objects with one key that is used.
func choose(same []*object.Object, used func(*object.Object) bool) *object.Object {
	if len(same) == 1 {
		return same[0]
	}
	return slices.MinFunc(same, func(a, b *object.Object) int { // the first of equals
		return cmp.Or(-compareBool(used(a), used(b)), older(a, b))
	})
}

// used gives what says that an object was in use before, by this agent or the one before
// it. Of the latter, it reads each file's state once, and only where it is asked for.
func (d *folder) used() func(*object.Object) bool {
	if d.inUse != nil {
		return func(o *object.Object) bool {
			file, known := d.inUse[o.Key]
			return known && file == o.File
		}
	}
	byFile := map[string]map[object.Key]bool{}
	return func(o *object.Object) bool {
		its, read := byFile[o.File]
		if !read {
			its = d.saved.used(o.File)
			byFile[o.File] = its
		}
		return its[o.Key]
	}
}

// noteUnused has the files remember which of their objects are not used.
func (d *folder) noteUnused(losers map[*object.Object]bool) {
	for _, f := range d.files {
		for _, o := range f.objects {
			if f.unused[o.Key] == losers[o] {
				continue
			}
			if f.unused == nil {
				f.unused = map[object.Key]bool{}
			}
			f.unused[o.Key], f.unsaved = losers[o], true
		}
	}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// older orders two objects with one key by their age; one of which it is not known
// comes after one of which it is.
func older(a, b *object.Object) int {
	if c := compareBool(a.Created.IsZero(), b.Created.IsZero()); c != 0 {
		return c
	}
	return a.Created.Compare(b.Created)
}

// twice is the Problem of an object whose key another has.
func twice(loser, winner *object.Object, used bool) problem.Problem {
	why := "comes first"
	switch {
	case used:
		why = "was there first"
	case older(winner, loser) < 0:
		why = "is older"
	}
	return loser.Problem(loser.Line, "metadata.name", "is also in %s, which %s and is used; remove or rename one of the two",
		winner.Where(), why)
}
