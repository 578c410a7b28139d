package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/statedir"
	"github.com/fairlead/fairlead/source/object"
)

// savedVersion is the version of the fileState format.
const savedVersion = 1

// fileState is the persistent state of a file: the texts that its objects in force are
// from. They are parsed again with the rules of the release that needs them.
type fileState struct {
	Folder string      `json:"folder"`
	File   string      `json:"file"`
	Texts  []savedText `json:"texts"`
}

// savedText is a version of a file's text, with the objects in force that are from it.
type savedText struct {
	Text    []byte        `json:"text"`
	Objects []savedObject `json:"objects"`
}

type savedObject struct {
	object.Key
	// Stale is the time since which the object differs from the file; zero if it does not.
	Stale time.Time `json:"stale,omitzero"`
	// Unused means that another file's object with the same key is in use.
	Unused bool `json:"unused,omitempty"`
}

// saved has the states of the files of a directory. Its zero value stores nothing.
type saved struct {
	folder string
	files  statedir.Files
}

// save stores the files that have changed.
func (d *folder) save() {
	for _, name := range sortedKeys(d.files) {
		if f := d.files[name]; f.unsaved && f.missing.IsZero() {
			d.saved.save(name, f)
		}
	}
}

// save stores a file.
func (s saved) save(name string, f *file) {
	var was fileState
	if f.text == nil || len(f.stale) > 0 {
		was, _ = s.read(name) // failures were reported on restore
	}
	s.files.Write(name, f.state(s.folder, name, was))
	f.text, f.unsaved = nil, false
}

// state returns the state of a file to save. Texts that are needed but no longer loaded are
// taken from the previous state. It is pure.
func (f *file) state(folder, name string, was fileState) fileState {
	now := fileState{Folder: folder, File: name, Texts: make([]savedText, 1, len(was.Texts)+1)}
	now.Texts[0].Text = f.text
	from := map[object.Key]int{}
	for i, text := range was.Texts {
		now.Texts = append(now.Texts, savedText{Text: text.Text})
		for _, o := range text.Objects {
			from[o.Key] = i + 1
		}
	}
	for _, o := range f.objects {
		since := f.stale[o.Key]
		i, known := from[o.Key]
		if f.text != nil && since.IsZero() {
			i, known = 0, true
		}
		if known {
			now.Texts[i].Objects = append(now.Texts[i].Objects, savedObject{o.Key, since, f.unused[o.Key]})
		}
	}
	now.Texts = slices.DeleteFunc(now.Texts, func(t savedText) bool { return len(t.Objects) == 0 })
	return now
}

// read returns the state of a file, or fs.ErrNotExist.
func (s saved) read(name string) (st fileState, err error) {
	err = s.files.Read(name, &st)
	if err == nil && (st.File != name || st.Folder != s.folder) {
		err = fs.ErrNotExist // another directory's
	}
	if err != nil {
		return fileState{}, err
	}
	return st, nil
}

// restore restores the objects that were in force when a file's state was saved.
func (s saved) restore(name string, f *file) {
	st, err := s.read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		f.lost = "its last valid configuration cannot be restored: " + err.Error()
	default:
		f.restore(st)
	}
}

func (f *file) restore(st fileState) {
	f.stale, f.unused = map[object.Key]time.Time{}, map[object.Key]bool{}
	for _, text := range st.Texts {
		valid := byKey(parseFile(st.File, text.Text).objects)
		for _, was := range text.Objects {
			o := valid[was.Key]
			if o == nil {
				f.lost = fmt.Sprintf("its last valid configuration cannot be restored: this release rejects %s as it was", was.Key)
				continue
			}
			f.objects = append(f.objects, o)
			if f.unused[o.Key] = was.Unused; !was.Stale.IsZero() {
				f.stale[o.Key] = was.Stale
			}
		}
	}
}

// restoreAll restores the last content of the directory if it cannot be read at the start.
func (d *folder) restoreAll(now time.Time) {
	states, _ := statedir.All[fileState](d.saved.files)
	for _, st := range states {
		if st.Folder != d.saved.folder {
			continue
		}
		f := &file{}
		f.restore(st)
		for _, o := range f.objects {
			if f.stale[o.Key].IsZero() {
				f.stale[o.Key] = now
			}
		}
		d.files[st.File], d.loaded = f, true
	}
}

// used returns the objects of a file that were in use when its state was saved.
func (s saved) used(name string) map[object.Key]bool {
	st, err := s.read(name)
	if err != nil {
		return nil
	}
	used := map[object.Key]bool{}
	for _, t := range st.Texts {
		for _, o := range t.Objects {
			used[o.Key] = used[o.Key] || !o.Unused
		}
	}
	return used
}

// keep deletes the states of all other files.
func (s saved) keep(names map[string]bool) { s.files.Keep(slices.Collect(maps.Keys(names))) }

func (s saved) remove(name string) { s.files.Remove(name) }

// Persist stores the last valid objects of each file in a directory, for the next agent.
func (s *Source) Persist(dir *statedir.Dir) {
	folder, err := filepath.Abs(s.dir)
	if err != nil {
		folder = s.dir
	}
	s.saved = saved{folder, dir.Files("manifests", savedVersion)}
}
