package l2

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/actor"
)

// Members are separate processes, so that they can be killed.
func TestMain(m *testing.M) {
	actor.Play(play)
	testkit.Main(m)
}

// part is the role of a member.
type part struct {
	Self     netip.Addr
	Members  []netip.Addr
	Later    []netip.Addr // the members, set while it is running
	Password string
	Prefixes []netip.Prefix
}

// prefixes are an order to a member; nil changes nothing.
type prefixes []netip.Prefix

// report is the answer of a member.
type report struct {
	Answered []advertise.Answered
	Peers    []advertise.Peer
	Waits    []advertise.Withdrawal
}

func play(p part) error {
	level := slog.LevelError
	if os.Getenv("FAIRLEAD_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("self", p.Self)
	a, err := New(Config{Interfaces: []string{"eth0"}, Self: p.Self, Members: p.Members, Password: p.Password, Log: log})
	if err != nil {
		return err
	}
	if err := serve(p.Self); err != nil {
		return err
	}
	if p.Later != nil {
		if err := a.SetMembers(p.Later); err != nil {
			return err
		}
	}
	set := func(prefixes prefixes) error {
		var routes []route.Route
		for _, p := range prefixes {
			routes = append(routes, route.Route{Prefix: p})
		}
		return a.Set(routes)
	}
	if err := set(p.Prefixes); err != nil {
		return err
	}
	var failed error
	return actor.Serve(func(w prefixes) report {
		if w != nil {
			failed = errors.Join(failed, set(w))
		}
		return report{a.Answered(), a.Peers(), a.Withdrawing()}
	}, func() error { return errors.Join(failed, a.Close()) })
}

// serve sends every client the member's address.
func serve(self netip.Addr) error {
	ln, err := net.Listen("tcp", ":80")
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, self)
			c.Close()
		}
	}()
	return nil
}

type player = actor.Actor[prefixes, report]

func enact(t *testing.T, h *lab.Host, p part) *player {
	t.Helper()
	return actor.Start[prefixes, report](t, h, p)
}
