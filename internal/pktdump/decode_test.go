package pktdump

import (
	"encoding/hex"
	"strings"
	"testing"
	"unicode"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

func frame(t *testing.T, parts ...string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(parts, ""), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	eth4 = "020000000002 020000000001 0800"
	eth6 = "020000000002 020000000001 86dd"
	syn  = "04d2 0050 00000007 00000000 5002 03e8 0000 0000"
	ip4  = "45 00 0028 1234 4000 40 06 0000 c0000207 0a010101" // 192.0.2.7 > 10.1.1.1
)

func TestLine(t *testing.T) {
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"TCP", frame(t, eth4, ip4, syn),
			"Ethernet 02:00:00:00:00:01 > 02:00:00:00:00:02; IPv4 192.0.2.7 > 10.1.1.1, TTL 64, TCP, 40 bytes; TCP 1234 > 80 [SYN] seq 7 ack 0, 0 bytes of data"},
		{"IP in IP with the option", frame(t, eth4, "47 00 0044 0000 4000 3f 04 0000 ac100002 ac100501", "9e 08 ac100502 1f90", ip4, syn),
			"Ethernet 02:00:00:00:00:01 > 02:00:00:00:00:02; IPv4 172.16.0.2 > 172.16.5.1, TTL 63, IPv4, 68 bytes; Fairlead option: 172.16.5.2:8080; " +
				"IPv4 192.0.2.7 > 10.1.1.1, TTL 64, TCP, 40 bytes; TCP 1234 > 80 [SYN] seq 7 ack 0, 0 bytes of data"},
		{"IP in IP with a tag", frame(t, eth4, "48 00 0048 0000 4000 3f 04 0000 ac100002 ac100501", "9e 0a 5f01020304050607 0000", ip4, syn),
			"Ethernet 02:00:00:00:00:01 > 02:00:00:00:00:02; IPv4 172.16.0.2 > 172.16.5.1, TTL 63, IPv4, 72 bytes; Fairlead option: empty, tag by key 5f; " +
				"IPv4 192.0.2.7 > 10.1.1.1, TTL 64, TCP, 40 bytes; TCP 1234 > 80 [SYN] seq 7 ack 0, 0 bytes of data"},
		{"GUE with a chain and a tag", frame(t, eth4, "45 00 005c 0000 4000 3f 11 0000 ac100002 ac100501", "c001 17c0 0048 0000", "05 04 0000 9e 01 0200 ac100502 1f90 a301020304050607 0000", ip4, syn),
			"Ethernet 02:00:00:00:00:01 > 02:00:00:00:00:02; IPv4 172.16.0.2 > 172.16.5.1, TTL 63, UDP, 92 bytes; UDP 49153 > 6080, 64 bytes of data; " +
				"GUE IPv4; Fairlead chain: 172.16.5.2:8080, tag by key a3; IPv4 192.0.2.7 > 10.1.1.1, TTL 64, TCP, 40 bytes; TCP 1234 > 80 [SYN] seq 7 ack 0, 0 bytes of data"},
		{"GUE with a chain", frame(t, eth4, "45 00 0054 0000 4000 3f 11 0000 ac100002 ac100501", "c001 17c0 0040 0000", "03 04 0000 9e 01 0000 ac100502 1f90 0000", ip4, syn),
			"Ethernet 02:00:00:00:00:01 > 02:00:00:00:00:02; IPv4 172.16.0.2 > 172.16.5.1, TTL 63, UDP, 84 bytes; UDP 49153 > 6080, 56 bytes of data; " +
				"GUE IPv4; Fairlead chain: 172.16.5.2:8080; IPv4 192.0.2.7 > 10.1.1.1, TTL 64, TCP, 40 bytes; TCP 1234 > 80 [SYN] seq 7 ack 0, 0 bytes of data"},
		{"fragment", frame(t, eth4, "45 00 001c 1234 2001 40 11 0000 c0000207 0a010101", "0102030405060708"),
			"Ethernet 02:00:00:00:00:01 > 02:00:00:00:00:02; IPv4 192.0.2.7 > 10.1.1.1, TTL 64, UDP, 28 bytes; fragment 0x1234 at 8, more follow"},
		{"ICMP error", frame(t, eth4, "45 00 0038 0000 4000 40 01 0000 c6336401 0a010101", "03 04 0000 0000 0578",
			"45 00 0028 1234 4000 40 06 0000 0a010101 c0000207", "0050 04d2 00000001"),
			"Ethernet 02:00:00:00:00:01 > 02:00:00:00:00:02; IPv4 198.51.100.1 > 10.1.1.1, TTL 64, ICMPv4, 56 bytes; ICMP DestinationUnreachable(FragmentationNeeded); " +
				"about IPv4 10.1.1.1 > 192.0.2.7, TTL 64, TCP, 40 bytes; ports 80 > 1234"},
		{"cut off", frame(t, eth4, "45 00"), "Ethernet 02:00:00:00:00:01 > 02:00:00:00:00:02; cannot be read on: Invalid ip4 header. Length 2 less than 20"},
	} {
		if got := Line(c.frame); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// FuzzLine checks that arbitrary input yields text without control characters, because
// drops and traces show packets of unknown senders on a terminal.
func FuzzLine(f *testing.F) {
	for _, s := range []string{eth4 + ip4 + syn, eth6 + "6000000000183c40", eth4 + "45000054000040003f110000ac100002ac100501c00117c0004000001f04"} {
		b, _ := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzlimit.Time(t)
		if len(b) > 0 && len(Lines(b)) == 0 {
			t.Error("not a word")
		}
		for _, r := range Line(b) {
			if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
				t.Errorf("%U in %q", r, Line(b))
			}
		}
		if n := len(Line(b)); n > 2000+20*len(b) {
			t.Errorf("%d bytes of words for %d of a frame", n, len(b))
		}
	})
}
