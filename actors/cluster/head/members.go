package head

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/head/decide"
	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

func pid() int { return os.Getpid() }

// JoinRequest is what a host says that has a token and no certificate yet. Its key stays with it.
type JoinRequest struct {
	Secret string `json:"secret"`
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Key    string `json:"key"` // public, PEM
	Binary string `json:"binary"`
}

// JoinAnswer makes a host a member.
type JoinAnswer struct {
	Cert  string   `json:"cert"`
	CA    string   `json:"ca"`
	Heads []string `json:"heads"` // their addresses
}

// newToken makes a token by which one host may join. The store gets only its key, so that nobody
// who reads the store can use it.
func (h *Head) newToken(w http.ResponseWriter, r *http.Request) {
	t := trust.NewToken(h.ca.Hash(), h.self.Addr)
	until := time.Now().UTC().Add(decide.TokenLife)
	_, err := h.ask(r.Context(), func(n int64) decide.Input {
		return decide.NewToken{Ask: n, Key: t.Key(), Until: until}
	})
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, map[string]any{"token": t.String(), "until": until})
}

// join takes a host in that has a token. Whoever comes without one comes once a second from its address, and
// leaves a line in the log.
func (h *Head) join(w http.ResponseWriter, r *http.Request) {
	if err := h.knocks.try(r.RemoteAddr); err != nil {
		w.Header().Set("Connection", "close")
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	var q JoinRequest
	r.Body = http.MaxBytesReader(w, r.Body, maxJoin)
	if !read(w, r, &q) {
		return
	}
	cert, err := h.certify(q)
	in := decide.Join{Key: trust.SecretKey(q.Secret), Name: q.Name, Remote: r.RemoteAddr, Binary: q.Binary}
	if err != nil {
		in.Fault = err.Error()
	} else {
		in.Serial = trust.Serial(cert)
	}
	_, err = h.ask(r.Context(), func(n int64) decide.Input { in.Ask = n; return in })
	if errors.Is(err, decide.ErrNoToken) {
		h.knocks.wrong(r.RemoteAddr)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, JoinAnswer{Cert: trust.EncodeCert(cert), CA: trust.EncodeCert(h.ca.Cert), Heads: h.addrs()})
}

// certify makes the certificate of a host that wants to join. It is worth nothing until the host is a member.
func (h *Head) certify(q JoinRequest) (*x509.Certificate, error) {
	key, err := publicKey(q.Key)
	if err != nil {
		return nil, err
	}
	return h.ca.Issue(trust.Subject{Name: q.Name, Role: trust.Agent, Hosts: []string{q.Addr}}, key,
		time.Now(), trust.NodeLife)
}

// publicKey reads a key that somebody wants a certificate for.
func publicKey(text string) (*ecdsa.PublicKey, error) {
	b, _ := pem.Decode([]byte(text))
	if b == nil {
		return nil, errors.New("the key is not in PEM form")
	}
	k, err := x509.ParsePKIXPublicKey(b.Bytes)
	key, isEC := k.(*ecdsa.PublicKey)
	if err != nil || !isEC {
		return nil, errors.New("the key is no ECDSA key")
	}
	return key, nil
}

// maxJoin bounds what may be brought by somebody whom nobody knows.
const maxJoin = 64 << 10

const enrolFile = "members.json"

// Enroll lets a head begin with members: those that `cluster up` has made certificates for, by their
// names, with the serial numbers of these.
func Enroll(dir string, serials map[string]string) error {
	text, err := json.Marshal(serials)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, enrolFile), text, 0o600)
}

// enroll takes the members that Enroll has left, once: of several heads with the list the first takes it.
func (h *Head) enroll(done bool) error {
	name := filepath.Join(h.o.Dir, enrolFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var serials map[string]string
	if err := json.Unmarshal(text, &serials); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !done {
		for some := range slices.Chunk(slices.Sorted(maps.Keys(serials)), store.MostOps) { // what one commit takes
			part := map[string]string{}
			for _, n := range some {
				part[n] = serials[n]
			}
			h.step(decide.Enroll{Serials: part})
		}
		h.step(decide.Enroll{Last: true})
		ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
		defer cancel()
		if err := h.look(ctx, func(*decide.Head) {}); err != nil {
			return err
		}
	}
	return os.Remove(name)
}

// host asks something about the host of a request, and answers with what it is.
func (h *Head) host(w http.ResponseWriter, r *http.Request, in func(ask int64) decide.Input) {
	a, err := h.ask(r.Context(), in)
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, a.Member)
}

// drain takes no new process to a host, or with back=1 does again.
func (h *Head) drain(w http.ResponseWriter, r *http.Request) {
	h.host(w, r, func(n int64) decide.Input {
		return decide.Drain{Ask: n, Host: r.PathValue("name"), Back: r.URL.Query().Get("back") == "1"}
	})
}

// removeHost ends a host's membership.
func (h *Head) removeHost(w http.ResponseWriter, r *http.Request) {
	h.host(w, r, func(n int64) decide.Input { return decide.Remove{Ask: n, Host: r.PathValue("name")} })
}

// backup sends the content of the store. An error in the middle can only be logged, as the answer has begun.
func (h *Head) backup(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := h.term.Backup(w); err != nil {
		h.logf("! backup: %v", err)
	}
}
