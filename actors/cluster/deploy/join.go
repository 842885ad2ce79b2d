package deploy

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// Join makes this host a member of the cluster of a token and returns what its agent is run with, and the
// addresses of the cluster's heads. An
// empty name is this machine's; an empty addr is the one that this machine reaches the head from.
func Join(ctx context.Context, t trust.Token, name, addr, binary string) (user.Host, []string, error) {
	h := user.Host{Name: name, Addr: addr}
	var err error
	if h.Name == "" {
		if h.Name, err = os.Hostname(); err != nil {
			return h, nil, err
		}
	}
	if h.Addr == "" {
		if h.Addr, err = towards(ctx, t.Addr); err != nil {
			return h, nil, exit.With(fmt.Errorf("the head of the token does not answer: %w", err), exit.Unreachable)
		}
	}
	root, err := user.Root()
	if err != nil {
		return h, nil, err
	}
	h.Dir = filepath.Join(root, "agents", t.CA[:12]+"-"+h.Name)
	heads, err := enter(ctx, t, h, binary)
	return h, heads, err
}

// enter asks the head of a token for a certificate for a host, and saves it in the host's directory. It
// returns the addresses of all heads.
func enter(ctx context.Context, t trust.Token, h user.Host, binary string) ([]string, error) {
	key, err := trust.NewKey()
	if err != nil {
		return nil, err
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	q := head.JoinRequest{Secret: t.Secret, Name: h.Name, Addr: h.Addr, Binary: binary,
		Key: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}))}
	var a head.JoinAnswer
	if err := ask(ctx, control.NewJoiner(t), q, &a); err != nil {
		return nil, exit.With(fmt.Errorf("joining the cluster at %s: %w", t.Addr, err), exit.Unreachable)
	}
	cert, err := trust.DecodeCert(a.Cert)
	if err != nil {
		return nil, err
	}
	ca, err := trust.DecodeCert(a.CA)
	if err != nil {
		return nil, err
	}
	return a.Heads, trust.SaveIdentity(h.Dir, ca, cert, key)
}

// knocks is how often a host asks that is told to wait, since a wrong token was tried from its address before.
const knocks = 5

// ask asks to join, and waits where the head says so.
func ask(ctx context.Context, c *control.Client, q head.JoinRequest, a *head.JoinAnswer) (err error) {
	for range knocks {
		err = c.Do(ctx, "POST", "/v1/join", q, a)
		var r *control.Refused
		if !errors.As(err, &r) || r.Status != http.StatusTooManyRequests {
			return err
		}
		if machine.Pause(ctx, head.KnockEvery) != nil {
			return ctx.Err()
		}
	}
	return err
}

// towards is this machine's address on the way to another.
func towards(ctx context.Context, addr string) (string, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	return host, err
}
