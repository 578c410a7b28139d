package sysdump

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/verdict"
)

// Part is the dump of one node, or why it is missing.
type Part struct {
	Name string
	Dump io.Reader
	Err  error
}

// Cluster is what was collected of several nodes.
type Cluster struct {
	Parts []Part
	// Verdict, if not nil, is the verdict on the nodes. Otherwise it is derived from the
	// statuses in the dumps, without their clocks.
	Verdict *verdict.Verdict
	// Files are further files without secrets, Missed what could not be collected.
	Files  map[string][]byte
	Missed map[string]error
}

// Merge returns one archive of all, with the findings and the summary.
func (c Cluster) Merge(now time.Time, max int64) (*Archive, []Finding, []byte) {
	a := NewArchive("sysdump-cluster", now, max)
	var all []Finding
	var answers []verdict.Answer
	for _, p := range c.Parts {
		found, statuses, err := a.include(p)
		if err != nil {
			a.Miss(p.Name, err)
			answers = append(answers, verdict.Answer{Name: p.Name, Err: err})
		}
		all, answers = append(all, found...), append(answers, statuses...)
	}
	v := c.Verdict
	if v == nil {
		of := verdict.Of(answers)
		v = &of
	}
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		a.Add(name, c.Files[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.Missed)) {
		a.Miss(name, c.Missed[name])
	}
	all = sorted(append(Disagreements(*v), all...))
	return a, all, Summary(fmt.Sprintf("%d nodes", len(c.Parts)), now, []string{v.String()}, all, a.Left)
}

// include adds the files of a node, and returns its findings and the statuses of its daemons.
func (a *Archive) include(p Part) (all []Finding, statuses []verdict.Answer, err error) {
	if p.Err != nil {
		return nil, nil, p.Err
	}
	err = Each(p.Dump, func(name string, text []byte) error {
		_, inside, _ := strings.Cut(name, "/")
		if !fs.ValidPath(inside) || inside == "." {
			return fmt.Errorf("%q is not the name of a file in a dump", name)
		}
		switch {
		case inside == FindingsFile:
			if err := json.Unmarshal(text, &all); err != nil {
				return err
			}
		case path.Base(inside) == "status.json":
			one := verdict.Answer{Name: p.Name}
			if err := json.Unmarshal(text, &one.Status); err != nil {
				return err
			}
			statuses = append(statuses, one)
		}
		a.Add(path.Join(p.Name, inside), text)
		return nil
	})
	return all, statuses, err
}

// WriteFile writes an archive to a file, which only its owner may read, and the summary to out.
func WriteFile(name string, a *Archive, summary []byte, all []Finding, out io.Writer) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(Write(file, a, summary, all), file.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\nwritten to %s\n", summary, name)
	return err
}

// Write writes an archive, with findings as JSON, which contain no secret.
func Write(w io.Writer, a *Archive, summary []byte, all []Finding) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if all == nil {
		all = []Finding{}
	}
	if err := enc.Encode(all); err != nil {
		return err
	}
	return a.write(w, summary, b.Bytes())
}
