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

// etcd is etcd's API as JSON over HTTP (its documentation: "gRPC gateway"), of
// which little is needed here.
type etcd struct {
	url    string
	client *http.Client
}

// put is a key with its value, for which JSON has base64.
type put struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

func (e etcd) healthy(ctx context.Context) error {
	return get(ctx, e.client, e.url+"/health")
}

// write puts all in one transaction, which --max-txn-ops bounds.
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

// compact forgets all revisions but the present one.
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

// givenPorts are those that freePorts has given.
var givenPorts sync.Map

// freePorts finds TCP ports of loopback that nobody has, below those that the
// kernel gives to clients: a client that asks for a stopped server again and
// again could else be given the server's own port.
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
			continue // to another server, which may not have it yet
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
