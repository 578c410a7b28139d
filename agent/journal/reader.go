package journal

import "github.com/fairlead/fairlead/core/event"

// Reader receives events as they are recorded.
type Reader struct {
	// C is closed when the Journal or the Reader ends, or if the Reader lags too far
	// behind.
	C     <-chan event.Event
	c     chan event.Event
	query event.Query
}

// Follow returns the selected events so far, and a Reader of later ones.
func (j *Journal) Follow(q event.Query) ([]event.Event, *Reader, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.readers) >= maxReaders {
		return nil, nil, ErrReaders
	}
	r := &Reader{c: make(chan event.Event, maxLag), query: q}
	r.C = r.c
	if j.closed {
		close(r.c)
	} else {
		j.readers[r] = true
	}
	return j.list.All(q), r, nil
}

// Unfollow ends a Reader.
func (j *Journal) Unfollow(r *Reader) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.end(r)
}

// pass passes an event on, or ends a slow reader; runs under j.mu.
func (j *Journal) pass(r *Reader, e event.Event) {
	if !r.query.Selects(e) {
		return
	}
	select {
	case r.c <- e:
	default:
		j.end(r)
	}
}

// end closes a reader once; runs under j.mu.
func (j *Journal) end(r *Reader) {
	if j.readers[r] {
		delete(j.readers, r)
		close(r.c)
	}
}

func (j *Journal) endReaders() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for r := range j.readers {
		j.end(r)
	}
}
