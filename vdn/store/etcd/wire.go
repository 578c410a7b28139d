package etcd

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file has the messages of the etcd v3 API that are used. Field numbers are those of
// its api/etcdserverpb/rpc.proto and api/mvccpb/kv.proto, which never change.

// message is an encoded request.
type message []byte

func (m message) text(field protowire.Number, s string) message {
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), s)
}

func (m message) number(field protowire.Number, n int64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), uint64(n))
}

func (m message) inner(field protowire.Number, in message) message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), in)
}

// get is a RangeRequest of one key.
func get(key string) message { return message(nil).text(1, key) }

// list is a RangeRequest for up to page keys below a prefix, starting at from, at an etcd
// revision; 0 is the newest.
func list(from, prefix string, at int64) message {
	return message(nil).text(1, from).text(2, end(prefix)).number(3, page).number(4, at)
}

// end is the first key after all keys with a prefix. The prefix ends with a slash.
func end(prefix string) string {
	return prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
}

// RequestOps.

func opGet(key string) message    { return message(nil).inner(1, get(key)) }
func opDelete(key string) message { return message(nil).inner(3, message(nil).text(1, key)) }

// opPut writes a value, which etcd deletes when the lease ends; 0 is no lease.
func opPut(key, value string, lease int64) message {
	return message(nil).inner(2, message(nil).text(1, key).text(2, value).number(3, lease))
}

// Compares. Their result is EQUAL, the default.

func isAbsent(key string) message {
	return message(nil).number(2, 0).text(3, key).number(4, 0) // VERSION is 0
}

func hasValue(key, value string) message {
	return message(nil).number(2, 3).text(3, key).text(7, value) // VALUE
}

// txn is a TxnRequest.
func txn(compare, then, otherwise []message) (m message) {
	for i, part := range [][]message{compare, then, otherwise} {
		for _, one := range part {
			m = m.inner(protowire.Number(i+1), one)
		}
	}
	return m
}

// watchRequest is a WatchRequest that creates a watch of a prefix from a revision on.
func watchRequest(prefix string, from int64) message {
	return message(nil).inner(1, message(nil).text(1, prefix).text(2, end(prefix)).number(3, from))
}

// pair is a KeyValue.
type pair struct {
	key   string
	value []byte // not nil
	at    int64  // the revision that wrote it
}

// listed is a RangeResponse.
type listed struct {
	at    int64 // the newest etcd revision
	pairs []pair
	more  bool
}

// decided is a TxnResponse. Only the response to opGet is used.
type decided struct {
	yes  bool
	read listed
}

// change is an Event.
type change struct {
	pair
	deleted bool
}

// watched is a WatchResponse.
type watched struct {
	canceled  bool
	compacted int64
	reason    string
	changes   []change
}

// granted is a LeaseGrantResponse or a LeaseKeepAliveResponse. ttl is in seconds.
type granted struct{ id, ttl int64 }

// token is an AuthenticateResponse.
type token string

// fields parses the fields of a message: number receives varints; inner receives strings,
// bytes and messages. Fields of other types are skipped.
func fields(b []byte, number func(id protowire.Number, n int64), inner func(id protowire.Number, b []byte) error) error {
	for len(b) > 0 {
		id, kind, n := protowire.ConsumeTag(b)
		if n < 0 || id > protowire.MaxValidNumber {
			return fmt.Errorf("etcd sent a message that is not valid: %w", protowire.ParseError(min(n, -1)))
		}
		b = b[n:]
		var err error
		switch kind {
		case protowire.VarintType:
			var v uint64
			if v, n = protowire.ConsumeVarint(b); n >= 0 {
				number(id, int64(v))
			}
		case protowire.BytesType:
			var v []byte
			if v, n = protowire.ConsumeBytes(b); n >= 0 {
				err = inner(id, v)
			}
		default:
			n = protowire.ConsumeFieldValue(id, kind, b)
		}
		if n < 0 {
			return fmt.Errorf("etcd sent a message that is not valid: %w", protowire.ParseError(n))
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Callbacks that ignore a kind of field.
func noNumber(protowire.Number, int64)       {}
func noInner(protowire.Number, []byte) error { return nil }

func (p *pair) parse(b []byte) error {
	return fields(b, func(id protowire.Number, n int64) {
		if id == 3 {
			p.at = n
		}
	}, func(id protowire.Number, b []byte) error {
		switch id {
		case 1:
			p.key = string(b)
		case 5:
			p.value = append([]byte{}, b...)
		}
		return nil
	})
}

func (l *listed) parse(b []byte) error {
	return fields(b, func(id protowire.Number, n int64) {
		if id == 3 {
			l.more = n != 0
		}
	}, func(id protowire.Number, b []byte) error {
		switch id {
		case 1: // the header
			return fields(b, func(id protowire.Number, n int64) {
				if id == 3 {
					l.at = n
				}
			}, noInner)
		case 2:
			p := pair{value: []byte{}}
			err := p.parse(b)
			l.pairs = append(l.pairs, p)
			return err
		}
		return nil
	})
}

func (d *decided) parse(b []byte) error {
	return fields(b, func(id protowire.Number, n int64) {
		if id == 2 {
			d.yes = n != 0
		}
	}, func(id protowire.Number, b []byte) error {
		if id != 3 {
			return nil
		}
		return fields(b, noNumber, func(id protowire.Number, b []byte) error {
			if id == 1 {
				return d.read.parse(b)
			}
			return nil
		})
	})
}

func (c *change) parse(b []byte) error {
	return fields(b, func(id protowire.Number, n int64) {
		if id == 1 {
			c.deleted = n == 1
		}
	}, func(id protowire.Number, b []byte) error {
		if id == 2 {
			return c.pair.parse(b)
		}
		return nil
	})
}

func (w *watched) parse(b []byte) error {
	return fields(b, func(id protowire.Number, n int64) {
		switch id {
		case 4:
			w.canceled = n != 0
		case 5:
			w.compacted = n
		}
	}, func(id protowire.Number, b []byte) error {
		switch id {
		case 6:
			w.reason = string(b)
		case 11:
			c := change{pair: pair{value: []byte{}}}
			err := c.parse(b)
			w.changes = append(w.changes, c)
			return err
		}
		return nil
	})
}

func (g *granted) parse(b []byte) error {
	return fields(b, func(id protowire.Number, n int64) {
		switch id {
		case 2:
			g.id = n
		case 3:
			g.ttl = n
		}
	}, noInner)
}

func (t *token) parse(b []byte) error {
	return fields(b, noNumber, func(id protowire.Number, b []byte) error {
		if id == 2 {
			*t = token(b)
		}
		return nil
	})
}
