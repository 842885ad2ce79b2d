package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// certified writes a certificate for 127.0.0.1 that is its own authority, and its key.
func certified(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	dir := t.TempDir()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return path
	}
	cert, key = write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", secret)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return cert, key, pool
}

// TestListen: with a certificate a listener speaks TLS to those who trust it and to nobody without; half of the
// pair and files that are none are refused.
func TestListen(t *testing.T) {
	cert, key, pool := certified(t)
	_, err := listen("127.0.0.1:0", cert, "")
	require.ErrorContains(t, err, "--tls-cert and --tls-key go together")
	_, err = listen("127.0.0.1:0", key, cert)
	require.ErrorContains(t, err, "serve: ")

	l, err := listen("127.0.0.1:0", cert, key)
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // the server's end is not what is tested
	require.Equal(t, "wss", scheme(l, "ws"))
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // it ends with the listener
			_, _ = io.WriteString(w, "here") // whoever has gone away needs none
		}))
	}()
	trusting := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	r, err := trusting.Get("https://" + l.Addr().String())
	require.NoError(t, err)
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, "here", string(b))
	_, err = http.Get("https://" + l.Addr().String())
	require.ErrorContains(t, err, "certificate")

	open, err := listen("127.0.0.1:0", "", "")
	require.NoError(t, err)
	defer open.Close() //nolint:errcheck // likewise
	require.Equal(t, "http", scheme(open, "http"))
}
