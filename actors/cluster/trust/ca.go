package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Role is what a certificate permits its owner.
type Role string

// The roles. A worker process uses its agent's certificate: both belong to one user of one host.
const (
	Head   Role = "head"   // keeps the cluster's state
	Agent  Role = "agent"  // starts processes on its host and joins edges
	Admin  Role = "admin"  // may do everything a user may
	Submit Role = "submit" // may start and stop jobs
	View   Role = "view"   // may look
)

// Lives of certificates. Backdate lets hosts take part whose clocks are late; a certificate is
// renewed when half of its life is over, so that half of it is left for clocks that are early.
const (
	CALife   = 10 * 365 * 24 * time.Hour
	NodeLife = 24 * time.Hour
	HeadLife = 30 * 24 * time.Hour
	UserLife = 90 * 24 * time.Hour
	Backdate = time.Hour
)

// CA is a cluster's certificate authority.
type CA struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Subject is what a certificate says of its owner.
type Subject struct {
	Name  string // of the node or user, unique in the cluster
	Role  Role
	Hosts []string // names and addresses that a server answers under, beside Name
}

// NewCA makes an authority for the cluster of this name, valid from now.
func NewCA(cluster string, now time.Time) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: serial(), Subject: pkix.Name{CommonName: "lfactor cluster " + cluster},
		NotBefore: now.Add(-Backdate), NotAfter: now.Add(CALife), IsCA: true, BasicConstraintsValid: true,
		MaxPathLenZero: true,
		KeyUsage:       x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &CA{Cert: cert, key: key}, err
}

// serial is a random number of 127 bits, positive as RFC 5280 demands.
func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: the runtime ends the process instead
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

// Derive makes a secret of so many bytes of the authority's key, for a purpose.
func (a *CA) Derive(purpose string, n int) ([]byte, error) {
	key, err := a.key.Bytes()
	if err != nil {
		return nil, err
	}
	return hkdf.Key(sha256.New, key, nil, purpose, n)
}

// Hash names the authority: hexadecimal SHA-256 of its certificate.
func (a *CA) Hash() string { return HashOf(a.Cert) }

// HashOf is the hexadecimal SHA-256 of a certificate.
func HashOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// Issue signs a certificate for key's owner, valid for life from now.
func (a *CA) Issue(s Subject, key *ecdsa.PublicKey, now time.Time, life time.Duration) (*x509.Certificate, error) {
	if s.Name == HeadName && s.Role != Head {
		return nil, fmt.Errorf("%s is the name of heads, by which they know each other: choose another", s.Name)
	}
	t := &x509.Certificate{SerialNumber: serial(), Subject: pkix.Name{CommonName: s.Name},
		DNSNames:  []string{s.Name},
		NotBefore: now.Add(-Backdate), NotAfter: now.Add(life), BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{{Scheme: "lfactor", Host: "cluster", Path: "/" + string(s.Role) + "/" +
			s.Name}}}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if h != s.Name {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.Cert, key, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// NewKey makes a key for a node or a user.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// Owner is what a certificate of this cluster says of its owner; its chain has to be verified already.
func Owner(c *x509.Certificate) (Subject, error) {
	for _, u := range c.URIs {
		role, name, ok := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
		if u.Scheme == "lfactor" && ok {
			return Subject{Name: name, Role: Role(role)}, nil
		}
	}
	return Subject{}, errors.New("the certificate names no role in a cluster")
}

// Files of a directory with an identity.
const (
	caFile   = "ca.pem"
	caKey    = "ca-key.pem"
	certFile = "cert.pem"
	keyFile  = "key.pem"
)

// Save writes the authority with its key to dir, which only its owner may enter.
func (a *CA) Save(dir string) error {
	if err := writePEM(filepath.Join(dir, caFile), "CERTIFICATE", a.Cert.Raw); err != nil {
		return err
	}
	return writeKey(filepath.Join(dir, caKey), a.key)
}

// LoadCA reads what Save has written.
func LoadCA(dir string) (*CA, error) {
	cert, err := readCert(filepath.Join(dir, caFile))
	if err != nil {
		return nil, err
	}
	key, err := readKey(filepath.Join(dir, caKey))
	if err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("%s does not belong to %s: restore both from one backup",
			filepath.Join(dir, caKey), caFile)
	}
	return &CA{Cert: cert, key: key}, nil
}

// SaveIdentity writes a certificate, its key and the authority to dir.
func SaveIdentity(dir string, ca, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := writePEM(filepath.Join(dir, caFile), "CERTIFICATE", ca.Raw); err != nil {
		return err
	}
	if err := writeKey(filepath.Join(dir, keyFile), key); err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, certFile), "CERTIFICATE", cert.Raw)
}

// EncodeCert is a certificate as PEM.
func EncodeCert(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

// DecodeCert reads one certificate from PEM.
func DecodeCert(text string) (*x509.Certificate, error) {
	b, _ := pem.Decode([]byte(text))
	if b == nil || b.Type != "CERTIFICATE" {
		return nil, errors.New("no certificate in PEM form")
	}
	return x509.ParseCertificate(b.Bytes)
}

// writePEM replaces a file as a whole, so that a reader sees the old or the new one.
func writePEM(name, kind string, der []byte) error {
	tmp := name + ".new"
	if err := os.WriteFile(tmp, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

// writeKey writes a private key in PKCS #8 and PEM.
func writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(name, "PRIVATE KEY", der)
}

// readCert reads a certificate in PEM; errors name the file.
func readCert(name string) (*x509.Certificate, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	c, err := DecodeCert(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// readKey reads a private key. A file that others may read is refused, since the key may be known to them already.
func readKey(name string) (*ecdsa.PrivateKey, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: others may read this key (mode %o): make new certificates, and chmod "+
			"600", name, info.Mode().Perm())
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	b, _ := pem.Decode(text)
	if b == nil || b.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s: no private key in PEM form", name)
	}
	k, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	key, ok := k.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: the key is no ECDSA key", name)
	}
	return key, nil
}
