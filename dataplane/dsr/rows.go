package dsr

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/netorder"
)

// rows is the content of local_vips, or a part of it.
type rows map[dsrLocalVipKey]dsrLocalVip

// rowSet is a valid set of entries, as rows by the backend's address. The rows' places
// are not set yet.
type rowSet struct {
	servers map[netip.Addr]rows
}

// RejectedError is why Set does not program an entry.
type RejectedError struct {
	Entry Entry
	Err   error
}

func (e *RejectedError) Error() string { return fmt.Sprintf("%s: %v", e.Entry, e.Err) }

func (e *RejectedError) Unwrap() error { return e.Err }

// newRowSet accepts the valid entries and rejects the others with a reason.
func newRowSet(entries []Entry) (*rowSet, error) {
	d := &rowSet{servers: map[netip.Addr]rows{}}
	var refused []error
	for _, e := range entries {
		p := e.plain()
		err := p.check()
		if err == nil {
			err = d.add(p)
		}
		if err != nil {
			refused = append(refused, &RejectedError{e, err})
		}
	}
	return d, errors.Join(refused...)
}

func (d *rowSet) add(e Entry) error {
	server := e.Server.Addr()
	programmed := d.servers[server]
	if programmed == nil {
		programmed = rows{}
	}
	for key, row := range e.rows() {
		old, ok := programmed[key]
		if !ok || old == row {
			continue
		}
		if err := key.conflict(old, row); err != nil {
			return err
		}
	}
	for key, row := range e.rows() {
		if old, ok := programmed[key]; ok {
			row = merge(old, row)
		}
		programmed[key] = row
	}
	d.servers[server] = programmed
	return nil
}

// conflict returns why one key cannot represent two rows.
func (key dsrLocalVipKey) conflict(old, row dsrLocalVip) error {
	switch {
	case key.VipPort != 0:
		return fmt.Errorf("%s cannot distinguish two backends with one address, and %s exists already: use dsr-nat",
			methodOf(row.Method), entryOf(key, old).Server)
	case old.Deliver != row.Deliver:
		return fmt.Errorf("deliver: fragments have no ports, so a VIP has one address per backend, which is %s already", old.Deliver.netip())
	case old.Last != 0 && row.Last != 0:
		return fmt.Errorf("a VIP has one port range per backend, which is %d-%d already: use one range for both", old.First, old.Last)
	}
	return nil
}

// merge combines two rows without ports: a range includes single ports.
func merge(old, row dsrLocalVip) dsrLocalVip {
	if row.Last != 0 || old.Last == 0 && row.Method > old.Method {
		return row
	}
	return old
}

// rows are those of one entry: for packets with ports, and for those without.
func (e Entry) rows() rows {
	port := netorder.Port(e.Server.Port())
	row := dsrLocalVip{
		Server: addrOf(e.Server.Addr()), Deliver: addrOf(e.Deliver), Port: port, Method: methods[e.Method],
	}
	key := dsrLocalVipKey{Vip: addrOf(e.VIP), Server: row.Server, Proto: uint8(e.Protocol)}
	bare := row
	if e.Range() {
		bare.First, bare.Last = e.Port, e.Last
	} else {
		bare.Port = 0
	}
	all := rows{key: bare}
	byMAC := key
	byMAC.Server = dsrAddr{}
	if e.Method == service.DR {
		all[byMAC] = bare
	}
	if e.Range() {
		return all
	}
	key.VipPort = netorder.Port(e.Port)
	byMAC.VipPort = key.VipPort
	if e.Method != service.Tunnel {
		key.ServerPort = port
	}
	all[key] = row
	if e.Method == service.DR {
		all[byMAC] = row
	}
	return all
}

// isEntry distinguishes the row that represents an entry from its additional ones.
func isEntry(key dsrLocalVipKey, row dsrLocalVip) bool {
	return (key.VipPort != 0 || row.Last != 0) && (row.Method != methodDR || key.Server == dsrAddr{})
}

// entryOf converts a row back to an entry.
func entryOf(key dsrLocalVipKey, row dsrLocalVip) Entry {
	e := Entry{
		Key:    service.Key{VIP: key.Vip.netip(), Port: netorder.Port(key.VipPort), Protocol: service.Protocol(key.Proto)},
		Method: methodOf(row.Method),
		Server: netip.AddrPortFrom(row.Server.netip(), netorder.Port(row.Port)),
	}
	if row.Last != 0 {
		e.Port, e.Last = row.First, row.Last
	}
	if deliver := row.Deliver.netip(); deliver != e.Server.Addr() {
		e.Deliver = deliver
	}
	return e
}

func entriesOf(rows rows) []Entry {
	var entries []Entry
	for key, row := range rows {
		if isEntry(key, row) && row.Left == 0 {
			entries = append(entries, entryOf(key, row))
		}
	}
	slices.SortFunc(entries, Entry.Compare)
	return entries
}
