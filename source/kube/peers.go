package kube

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/object"
)

// DefaultNamespace is the agents' namespace if no pod says otherwise.
const DefaultNamespace = "fairlead"

// passwordKey is the key of the password in a Secret.
const passwordKey = "password"

// Intervals of checking the peers without a notification: Secrets are not watched, because
// an agent may only get those that it is given by name.
const (
	lookAgain  = 2 * time.Minute
	lookBroken = 10 * time.Second // if there are problems
)

// followPeers delivers the peers until ctx ends.
func (s *Source) followPeers(ctx context.Context) {
	again := time.NewTimer(lookAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.routing.wake:
		case <-again.C:
		}
		again.Reset(s.deliverPeers(ctx))
	}
}

// deliverPeers delivers the current peers, and returns when to check again.
func (s *Source) deliverPeers(ctx context.Context) time.Duration {
	s.mu.Lock()
	known := s.nodeRead() && s.routing.peers.loaded
	all, labels := slices.Collect(maps.Values(s.routing.peers.held)), s.routing.labels
	s.mu.Unlock()
	if !known {
		return lookAgain
	}
	peers, wrong := crd.PeersOf(all, labels)
	wrongs := problemsOf(wrong)
	var usable []crd.Peer
	for _, p := range peers {
		var err error
		if p.PasswordSecretRef != "" {
			p.Password, err = s.password(ctx, p.PasswordSecretRef)
		}
		if ctx.Err() != nil {
			return lookAgain
		}
		if err != nil {
			wrongs = append(wrongs, problem.Problem{Object: p.Object(), Field: "spec.passwordSecretRef", Message: err.Error()})
		}
		if err == nil || p.Password != "" {
			usable = append(usable, p)
		}
	}
	wrongs = append(wrongs, s.config.OnPeers(usable)...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems.put(s.problems.kinds, object.Key{Kind: kindPeer}, wrongs)
	s.wakeUp()
	if len(wrongs) > 0 {
		return lookBroken
	}
	return lookAgain
}

// password reads the password of a Secret. On failure it returns the last known one, with
// an error.
func (s *Source) password(ctx context.Context, name string) (string, error) {
	namespace := s.namespace()
	secret := &corev1.Secret{}
	err := s.client.core.Get().Namespace(namespace).Resource("secrets").Name(name).Do(ctx).Into(secret)
	password := advertise.Password(string(secret.Data[passwordKey])) // trimmed like a password file
	if err == nil && password == "" {
		err = fmt.Errorf("the Secret %s/%s has no key %q, or an empty one", namespace, name, passwordKey)
	}
	if err == nil {
		s.routing.passwords[name] = password
		return password, nil
	}
	last, ok := s.routing.passwords[name]
	if ok {
		return last, fmt.Errorf("%w; the password that was read last is used on", err)
	}
	return "", fmt.Errorf("%w; the peer is left out until Secret %s/%s has the password (and the agents may get it, by the chart's bgp.peerSecrets or a Role there)",
		err, namespace, name)
}

// namespace returns the agents' namespace.
func (s *Source) namespace() string {
	if s.config.Namespace != "" {
		return s.config.Namespace
	}
	text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if name := strings.TrimSpace(string(text)); err == nil && name != "" {
		return name
	}
	return DefaultNamespace
}
