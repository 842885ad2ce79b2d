package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Identity is a node or a user of a cluster, read from a directory: the authority, a certificate, its
// key, and the serial numbers that the cluster has revoked. The files may be replaced while connections
// exist: what is dialled or accepted later uses the new ones.
type Identity struct {
	dir  string
	now  func() time.Time
	ca   *x509.Certificate
	mu   sync.RWMutex
	seen [2]fs.FileInfo // the certificate's file and the list of the revoked, when they were read
	cert *tls.Certificate
	gone []string
}

const revokedFile = "revoked.json"

// Load reads an identity. Now is the clock that certificates are judged by; nil is the machine's.
func Load(dir string, now func() time.Time) (*Identity, error) {
	if now == nil {
		now = time.Now
	}
	ca, err := readCert(filepath.Join(dir, caFile))
	if err != nil {
		return nil, err
	}
	i := &Identity{dir: dir, now: now, ca: ca}
	return i, i.refresh()
}

// unchanged reports whether the files are those that were read. Thousands of handshakes at once ask that, and would stand
// in line for a lock that one holds while the system answers.
func (i *Identity) unchanged() bool {
	cert, err := os.Stat(filepath.Join(i.dir, certFile))
	revoked, none := os.Stat(filepath.Join(i.dir, revokedFile))
	i.mu.RLock()
	defer i.mu.RUnlock()
	return err == nil && i.cert != nil && same(cert, i.seen[0]) &&
		(errors.Is(none, fs.ErrNotExist) || none == nil && same(revoked, i.seen[1]))
}

// refresh reads again the files that have changed.
func (i *Identity) refresh() error {
	if i.unchanged() {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	info, err := os.Stat(filepath.Join(i.dir, certFile))
	if err != nil {
		return err
	}
	if i.cert == nil || !same(info, i.seen[0]) {
		leaf, err := readCert(filepath.Join(i.dir, certFile))
		if err != nil {
			return err
		}
		key, err := readKey(filepath.Join(i.dir, keyFile))
		if err != nil {
			return err
		}
		if !key.PublicKey.Equal(leaf.PublicKey) {
			return fmt.Errorf("%s: %s does not belong to %s", i.dir, keyFile, certFile)
		}
		i.cert = &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
		i.seen[0] = info
	}
	info, err = os.Stat(filepath.Join(i.dir, revokedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || same(info, i.seen[1]) {
		return err
	}
	text, err := os.ReadFile(filepath.Join(i.dir, revokedFile))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &i.gone); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(i.dir, revokedFile), err)
	}
	i.seen[1] = info
	return nil
}

// same says whether a file is the one that was read. Files are replaced as a whole: times alone are not fine enough.
func same(a, b fs.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

// Revoke replaces the list of revoked serial numbers that connections from now on are held to.
func (i *Identity) Revoke(serials []string) error {
	text, err := json.Marshal(serials)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.gone = slices.Clone(serials) // at once, whatever becomes of the file
	name := filepath.Join(i.dir, revokedFile)
	if have, err := os.ReadFile(name); err != nil || !bytes.Equal(have, text) { // a disk may be full
		err = os.WriteFile(name+".new", text, 0o600)
		if err == nil {
			err = os.Rename(name+".new", name)
		}
		if err != nil {
			i.seen[1], _ = os.Stat(name) // what it says is older
			return err
		}
	}
	i.seen[1] = nil
	return nil
}

// Revoked says whether a certificate was revoked.
func (i *Identity) Revoked(c *x509.Certificate) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return slices.Contains(i.gone, Serial(c))
}

// Gone are the serial numbers that are revoked, as they are known.
func (i *Identity) Gone() []string {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return slices.Clone(i.gone)
}

// Serial is a certificate's serial number in hexadecimal digits.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

// Replace takes a fresh certificate for the key that the identity has.
func (i *Identity) Replace(cert *x509.Certificate) error {
	own, err := i.current()
	if err != nil {
		return err
	}
	if key, ok := own.PrivateKey.(*ecdsa.PrivateKey); !ok || !key.PublicKey.Equal(cert.PublicKey) {
		return errors.New("the certificate is for another key")
	}
	return writePEM(filepath.Join(i.dir, certFile), "CERTIFICATE", cert.Raw)
}

// Files are what an identity is read from, by their names in a directory.
func (i *Identity) Files() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range []string{caFile, certFile, keyFile, revokedFile} {
		text, err := os.ReadFile(filepath.Join(i.dir, name))
		if errors.Is(err, fs.ErrNotExist) && name == revokedFile {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[name] = text
	}
	return out, nil
}

// Dir is where the identity's files are.
func (i *Identity) Dir() string { return i.dir }

// CA is the certificate of the cluster's authority.
func (i *Identity) CA() *x509.Certificate { return i.ca }

// Subject is what the identity's certificate says of it.
func (i *Identity) Subject() (Subject, error) {
	c, err := i.current()
	if err != nil {
		return Subject{}, err
	}
	return Owner(c.Leaf)
}

// Expiry is when the certificate ends.
func (i *Identity) Expiry() time.Time {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.cert.Leaf.NotAfter
}

// Stale reports whether half of the certificate's life of so long is over: it is to be renewed.
func (i *Identity) Stale(life time.Duration) bool { return i.Expiry().Sub(i.now()) < life/2 }

// current is the certificate to show now; a renewed one is taken up from the disk first.
func (i *Identity) current() (*tls.Certificate, error) {
	if err := i.refresh(); err != nil {
		return nil, err
	}
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.cert, nil
}

// base is what both ends of a connection demand: TLS 1.3, this authority, and no resumption, with which
// a certificate that has expired or was revoked meanwhile would still be taken.
func (i *Identity) base(allow []Role) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(i.ca)
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ClientCAs: pool, Time: i.now,
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return nil // a server without client certificates: the request's handler decides
			}
			who, err := Owner(s.PeerCertificates[0])
			switch {
			case err != nil:
				return err
			case i.Revoked(s.PeerCertificates[0]):
				return fmt.Errorf("the certificate of %s was revoked", who.Name)
			case !slices.Contains(allow, who.Role):
				return fmt.Errorf("%s has the role %s, which may not connect here", who.Name, who.Role)
			}
			return nil
		}}
}

// Barred says whether a connection failed because the other end, which has shown who it is, refuses the
// certificate that this one showed: it was revoked. One that has expired, or of another authority, is refused
// by other alerts (RFC 8446, section 6.2).
func Barred(err error) bool {
	return err != nil && strings.Contains(err.Error(), "remote error: tls: bad certificate")
}

// Server is for accepting connections of these roles.
func (i *Identity) Server(allow ...Role) *tls.Config {
	c := i.base(allow)
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.current() }
	return c
}

// Client is for dialling the node of this name, which has one of these roles.
func (i *Identity) Client(name string, allow ...Role) *tls.Config {
	c := i.base(allow)
	c.ServerName = name
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return i.current()
	}
	return c
}

// Renew replaces the identity's certificate by one of the same owner and key that begins now. Whoever holds
// the authority does that for itself: a head.
func (i *Identity) Renew(ca *CA, now time.Time, life time.Duration) error {
	own, err := i.current()
	if err != nil {
		return err
	}
	who, err := Owner(own.Leaf)
	if err != nil {
		return err
	}
	key, ok := own.Leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return errors.New("the certificate is for another kind of key")
	}
	who.Hosts = append(who.Hosts, own.Leaf.DNSNames...)
	for _, ip := range own.Leaf.IPAddresses {
		who.Hosts = append(who.Hosts, ip.String())
	}
	cert, err := ca.Issue(who, key, now, life)
	if err != nil {
		return err
	}
	return i.Replace(cert)
}
