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

// savedVersion is that of the form of fileState.
const savedVersion = 1

// fileState is what outlives the agent of a file: the texts that its objects in force
// are from. They are read again by the rules of the release that needs them.
type fileState struct {
	Folder string      `json:"folder"`
	File   string      `json:"file"`
	Texts  []savedText `json:"texts"`
}

// savedText is a text of a file, as it was at some time, and the objects in force that
// are from it.
type savedText struct {
	Text    []byte        `json:"text"`
	Objects []savedObject `json:"objects"`
}

type savedObject struct {
	object.Key
	// Stale is since when the object is not what the file says; zero where it is.
	Stale time.Time `json:"stale,omitzero"`
	// Unused says that another file's object of the same name is used.
	Unused bool `json:"unused,omitempty"`
}

// saved are the states of the files of a folder. Its zero value remembers nothing.
type saved struct {
	folder string
	files  statedir.Files
}

// save remembers those files that have changed.
func (d *folder) save() {
	for _, name := range sortedKeys(d.files) {
		if f := d.files[name]; f.unsaved && f.missing.IsZero() {
			d.saved.save(name, f)
		}
	}
}

// save remembers a file.
func (s saved) save(name string, f *file) {
	var was fileState
	if f.text == nil || len(f.stale) > 0 {
		was, _ = s.read(name) // what is lost was told of when it was to be restored
	}
	s.files.Write(name, f.state(s.folder, name, was))
	f.text, f.unsaved = nil, false
}

// state gives what is to be saved of a file. Texts that are needed and are not at hand
// are taken from what was saved before. It is pure.
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

// read gives the state of a file; fs.ErrNotExist where there is none.
func (s saved) read(name string) (st fileState, err error) {
	err = s.files.Read(name, &st)
	if err == nil && (st.File != name || st.Folder != s.folder) {
		err = fs.ErrNotExist // another folder's
	}
	if err != nil {
		return fileState{}, err
	}
	return st, nil
}

// restore gives a file the objects that were in force when its state was saved.
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

// restoreAll serves what the folder held last, where it cannot be read to begin with.
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

// used gives the objects of a file that were in use when its state was saved.
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

// keep forgets all files but those with these names.
func (s saved) keep(names map[string]bool) { s.files.Keep(slices.Collect(maps.Keys(names))) }

func (s saved) remove(name string) { s.files.Remove(name) }

// Persist has the last valid objects of each file outlive the agent in a folder.
func (s *Source) Persist(dir *statedir.Dir) {
	folder, err := filepath.Abs(s.dir)
	if err != nil {
		folder = s.dir
	}
	s.saved = saved{folder, dir.Files("manifests", savedVersion)}
}
