package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
)

// etcd is the part of etcd's JSON API over HTTP ("gRPC gateway" in its documentation)
// that this package uses.
type etcd struct {
	url    string
	client *http.Client
}

// put is a key with its value. JSON encodes both in base64.
type put struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

func (e etcd) healthy(ctx context.Context) error {
	return get(ctx, e.client, e.url+"/health")
}

// write puts all in one transaction. --max-txn-ops limits its size.
func (e etcd) write(ctx context.Context, puts []put) error {
	type op struct {
		Put put `json:"request_put"`
	}
	ops := make([]op, len(puts))
	for i, p := range puts {
		ops[i].Put = p
	}
	return e.call(ctx, "kv/txn", map[string]any{"success": ops}, nil)
}

// compact removes all revisions except the current one.
func (e etcd) compact(ctx context.Context) error {
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := e.call(ctx, "kv/range", map[string]any{"key": []byte("none")}, &now); err != nil {
		return err
	}
	return e.call(ctx, "kv/compaction", map[string]any{"revision": now.Header.Revision, "physical": true}, nil)
}

func (e etcd) call(ctx context.Context, method string, body, result any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/v3/"+method, bytes.NewReader(text))
	if err != nil {
		return err
	}
	answer, err := e.client.Do(request)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, said)
	}
	if err == nil && result != nil {
		err = json.Unmarshal(said, result)
	}
	if err != nil {
		return fmt.Errorf("etcd: %s: %w", method, err)
	}
	return nil
}

// givenPorts are the ports that freePorts has returned.
var givenPorts sync.Map

// freePorts finds unused TCP ports on loopback, below the kernel's range of ephemeral
// ports: a client that retries a stopped server could otherwise get the server's own
// port.
func freePorts(n int) ([]uint16, error) {
	const first, last = 20000, 30000
	var ports []uint16
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for range 1000 {
		if len(ports) == n {
			return ports, nil
		}
		port := first + rand.N(last-first)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue // given to another server, which may not listen yet
		}
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		held = append(held, l)
		ports = append(ports, uint16(port))
	}
	return nil, fmt.Errorf("no %d free ports of 127.0.0.1 from %d to %d", n, first, last)
}
