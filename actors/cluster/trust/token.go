package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Token lets one host join: it names the cluster's head and its authority, so that the secret is sent to nobody else.
type Token struct {
	CA     string // hash of the authority
	Secret string // good for one host
	Addr   string // of the head
}

const tokenMark = "lf1:"

// NewToken draws a secret.
func NewToken(ca, addr string) Token {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails: the runtime ends the process instead
	return Token{CA: ca, Secret: hex.EncodeToString(b[:]), Addr: addr}
}

// String is the form that a user carries from host to host.
func (t Token) String() string { return tokenMark + t.CA + ":" + t.Secret + "@" + t.Addr }

// Key is what the head keeps of a token: the secret cannot be found from it.
func (t Token) Key() string { return SecretKey(t.Secret) }

// SecretKey is Token.Key of a secret.
func SecretKey(secret string) string {
	sum := sha256.Sum256([]byte("lfactor join " + secret))
	return hex.EncodeToString(sum[:])
}

// ParseToken reads what String has written.
func ParseToken(s string) (Token, error) {
	body, marked := strings.CutPrefix(strings.TrimSpace(s), tokenMark)
	cred, addr, hasAddr := strings.Cut(body, "@")
	ca, secret, hasSecret := strings.Cut(cred, ":")
	if !marked || !hasAddr || !hasSecret {
		return Token{}, errors.New("this is no join token: it has the form lf1:HASH:SECRET@HOST:PORT, as " +
			"`lfactor cluster token` prints it")
	}
	if n, err := hex.DecodeString(ca); err != nil || len(n) != sha256.Size {
		return Token{}, errors.New("the join token is damaged: its hash of the cluster's authority has " +
			"another length; copy it whole")
	}
	if n, err := hex.DecodeString(secret); err != nil || len(n) != 24 {
		return Token{}, errors.New("the join token is damaged: its secret has another length; copy it whole")
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return Token{}, fmt.Errorf("the join token is damaged: %w; copy it whole", err)
	}
	return Token{CA: ca, Secret: secret, Addr: addr}, nil
}

// Open is for servers that also answer those who have no certificate yet and may do nothing but join.
// The chain has the authority, so that a joiner can compare its hash with the token's.
func (i *Identity) Open(allow ...Role) *tls.Config {
	c := i.Server(allow...)
	c.ClientAuth = tls.VerifyClientCertIfGiven
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		own, err := i.current()
		if err != nil {
			return nil, err
		}
		with := *own
		with.Certificate = [][]byte{own.Certificate[0], i.ca.Raw}
		return &with, nil
	}
	ended := i.ended(c.Clone())
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, endedProto) {
			return ended, nil
		}
		return nil, nil // c
	}
	return c
}

// endedProto is offered beside HTTP (RFC 7301) by a node whose certificate has ended, which says so by that.
const endedProto = "lfactor-ended"

// ended makes c take certificates of nodes that have ended, or by this clock have not begun, and are otherwise as all: the
// request's handler decides.
func (i *Identity) ended(c *tls.Config) *tls.Config {
	verify := i.base([]Role{Agent}).VerifyConnection
	c.NextProtos, c.ClientAuth = []string{"http/1.1"}, tls.RequireAnyClientCert
	c.VerifyConnection = func(s tls.ConnectionState) error {
		leaf, at := s.PeerCertificates[0], i.now()
		switch {
		case at.After(leaf.NotAfter):
			at = leaf.NotAfter
		case at.Before(leaf.NotBefore):
			at = leaf.NotBefore
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: c.ClientCAs, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			return err
		}
		return verify(s)
	}
	return c
}

// Ended is Client for one whose certificate has ended, to get another.
func (i *Identity) Ended(name string, allow ...Role) *tls.Config {
	c := i.Client(name, allow...)
	c.NextProtos = []string{endedProto, "http/1.1"}
	return c
}

// HasEnded says whether a connection failed because the certificate that this end has shown has ended, or not begun, by
// the other's clock.
func HasEnded(err error) bool {
	return err != nil && strings.Contains(err.Error(), "remote error: tls: expired certificate")
}

// HeadName is the name that the certificate of every head has.
const HeadName = "head"

// Joiner is for dialling the head of a token without a certificate. A server whose authority has
// another hash is refused before anything is sent.
func (t Token) Joiner() *tls.Config {
	// the authority is not known but by its hash
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if n := len(s.PeerCertificates); n != 2 || HashOf(s.PeerCertificates[1]) != t.CA {
				return errors.New("who answers there is not the cluster of this token: its authority has " +
					"another hash; nothing was sent")
			}
			pool := x509.NewCertPool()
			pool.AddCert(s.PeerCertificates[1])
			if _, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool,
				DNSName: HeadName}); err != nil {
				return err
			}
			who, err := Owner(s.PeerCertificates[0])
			if err == nil && who.Role != Head {
				err = fmt.Errorf("who answers there is %s, an %s and no head; nothing was sent", who.Name, who.Role)
			}
			return err
		}}
}
