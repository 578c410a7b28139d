package survival

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// The protocol on a connection: the client sends the connection's number and a sequence
// number. The server answers with both, its own number, and how many requests it has
// answered on this connection. Both sides can thus detect lost, duplicated or foreign
// bytes.
const (
	requestBytes = 16
	answerBytes  = 32
)

type request struct{ connection, sequence uint64 }

type answer struct {
	request
	server, answered uint64
}

func (r request) put(b []byte) {
	binary.BigEndian.PutUint64(b, r.connection)
	binary.BigEndian.PutUint64(b[8:], r.sequence)
}

func (a answer) put(b []byte) {
	a.request.put(b)
	binary.BigEndian.PutUint64(b[16:], a.server)
	binary.BigEndian.PutUint64(b[24:], a.answered)
}

func readRequest(b []byte) request {
	return request{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

func readAnswer(b []byte) answer {
	return answer{readRequest(b), binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[24:])}
}

// Serve answers requests on every connection of ln until ln is closed. number identifies
// the server.
func Serve(ln net.Listener, number uint64) error {
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go serve(conn, number)
	}
}

func serve(conn net.Conn, number uint64) {
	defer conn.Close()
	var in [requestBytes]byte
	var out [answerBytes]byte
	for answered := uint64(1); ; answered++ {
		if _, err := io.ReadFull(conn, in[:]); err != nil {
			return // the client has closed the connection, or counts the break
		}
		answer{readRequest(in[:]), number, answered}.put(out[:])
		if _, err := conn.Write(out[:]); err != nil {
			return
		}
	}
}
