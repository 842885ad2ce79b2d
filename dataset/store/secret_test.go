package store

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSecretReferences: what an address refers to is sent, and in no name, error or place; a file that is
// replaced is read anew; a reference that cannot be resolved names itself and what to do.
func TestSecretReferences(t *testing.T) {
	const password, token = "p@ss/w:rd?", "t&k=n#1"
	var got *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		http.ServeContent(w, r, "x", time.Unix(1e9, 0), strings.NewReader("hello"))
	}))
	defer s.Close()
	t.Setenv("LFACTOR_TEST_PASSWORD", password)
	at := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(at, []byte(token+"\n"), 0o600))
	c := testClient(t, 1<<20)
	host := strings.TrimPrefix(s.URL, "http://")
	name := "http://ann:${env:LFACTOR_TEST_PASSWORD}@" + host + "/${env:LFACTOR_TEST_PATH}/x?t=${file:" + at + "}"
	t.Setenv("LFACTOR_TEST_PATH", "bucket")
	f, err := c.openHTTP(name)
	require.NoError(t, err)
	b := make([]byte, 5)
	_, err = f.ReadAt(b, 0)
	require.True(t, err == nil || err == io.EOF, err)
	require.Equal(t, "hello", string(b))
	_, sent, _ := got.BasicAuth()
	require.Equal(t, password, sent)
	require.Equal(t, token, got.URL.Query().Get("t"))
	require.Equal(t, "/bucket/x", got.URL.Path)
	require.Equal(t, "http://"+host+"/${env:LFACTOR_TEST_PATH}/x", f.Name())
	require.Equal(t, f.Name(), Redact(name))
	require.NoError(t, f.Close())

	for ref, want := range map[string]string{
		"${env:LFACTOR_TEST_NONE}": "not set", "${file:/no/such/file}": "on every host",
		"${file:relative}": "from the root",
		"${vault:x}":       "want ${env:NAME}", "${}": "want ${env:NAME}",
	} {
		_, err := c.openHTTP("http://ann:" + ref + "@" + host + "/x")
		require.ErrorContains(t, err, ref)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), password)
	}
	_, err = Open("s3://${env:LFACTOR_TEST_PASSWORD}/key")
	require.Error(t, err)
	require.NotContains(t, err.Error(), password)
}
