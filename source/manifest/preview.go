package manifest

import (
	"crypto/sha256"
	"errors"
	"maps"
	"time"

	"github.com/fairlead/fairlead/source"
)

// Texts are the texts of files, by name.
type Texts map[string][]byte

// Preview returns what the source would publish if its directory had these files: only
// these (whole), or these in place of those with their names. As in the directory, rejected
// objects keep their previous version. It changes nothing.
func (s *Source) Preview(texts Texts, whole bool) (source.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folder == nil || !s.folder.loaded {
		return source.Snapshot{}, errors.New("the folder of manifests has not been read yet")
	}
	return s.folder.with(texts, whole).snapshot(), nil
}

// with returns a copy of the directory with other files.
func (d *folder) with(texts Texts, whole bool) *folder {
	c := &folder{
		dir: d.dir, files: map[string]*file{}, joiner: d.joiner, inUse: d.inUse, balancers: d.balancers, acceptFrom: d.acceptFrom,
		routing: routing{labels: d.routing.labels}, loaded: true, strange: d.strange,
	}
	for name, f := range d.files {
		if _, stays := texts[name]; whole && !stays {
			continue
		}
		copied := *f
		copied.unused = maps.Clone(f.unused)
		c.files[name] = &copied
	}
	for name, text := range texts {
		f := c.files[name]
		if f == nil {
			f = &file{}
			c.files[name] = f
		}
		f.missing, f.unread = time.Time{}, ""
		if f.taken == nil || f.sum != sha256.Sum256(text) {
			f.take(parseFile(name, text), time.Time{})
		}
	}
	return c
}
