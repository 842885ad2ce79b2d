package format

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

// Shards and JSON lines over HTTP are the same as on disk, compressed ones too; braces name several; the
// credentials in a URL show nowhere.
func TestRemoteData(t *testing.T) {
	t.Setenv("LFACTOR_CACHE", t.TempDir())
	files := map[string][]byte{"/lines.jsonl": []byte("{\"text\":\"one\"}\n{\"text\":\"two\"}\n")}
	for _, n := range []string{"python-000000.tar", "python-000001.tar", "pax.tar.gz"} {
		b, err := os.ReadFile(shardDir + "/" + n)
		require.NoError(t, err)
		files["/"+n] = b
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		b, ok := files[r.URL.Path]
		if !ok || user != "me" || password != "secret" || r.URL.Query().Get("sig") != "secret" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}))
	defer s.Close()
	base := strings.Replace(s.URL, "http://", "http://me:secret@", 1)
	for remote, local := range map[string]string{"/python-{000000..000001}.tar?sig=secret": "python-{000000..000001}.tar", "/pax.tar.gz?sig=secret": "pax.tar.gz"} {
		src := formattest.Open(t, base+remote, dataset.Options{})
		require.Equal(t, samplesOf(t, formattest.Open(t, shardDir+"/"+local, dataset.Options{})), samplesOf(t, src))
		require.NotContains(t, src.Name(), "secret")
		d, err := src.Read(0)
		require.NoError(t, err)
		require.NotContains(t, d.Place.File, "secret")
	}
	lines := formattest.Open(t, base+"/lines.jsonl?sig=secret", dataset.Options{})
	d, err := lines.Read(1)
	require.NoError(t, err)
	require.Equal(t, "two", d.Text)
	_, err = dataset.Open(base+"/missing.tar?sig=wrong-secret", dataset.Options{})
	require.ErrorContains(t, err, "403 Forbidden; check the credentials")
	require.NotContains(t, err.Error(), "secret")
}

// TestDiskAlone: a URL of what is read from disk alone is refused by that reason, not as a missing file; its
// credentials do not show.
func TestDiskAlone(t *testing.T) {
	t.Setenv("LFACTOR_CACHE", t.TempDir())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("a text"))
	}))
	defer s.Close()
	for _, format := range []string{"text", "megatron"} {
		_, err := dataset.Open(strings.Replace(s.URL, "http://", "http://me:secret@", 1)+"/a.txt",
			dataset.Options{Format: format})
		require.ErrorContains(t, err, "is read from disk alone, not from "+s.URL+"/a")
		require.NotContains(t, err.Error(), "secret")
	}
}

// TestAskedOnce: a store that fails is asked for a file once, not again for whether it is a blend: the five
// attempts at one that does not answer take minutes.
func TestAskedOnce(t *testing.T) {
	t.Setenv("LFACTOR_CACHE", t.TempDir())
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.NotFound(w, r)
	}))
	defer s.Close()
	_, err := dataset.OpenBlend(s.URL+"/lines.jsonl", dataset.Options{})
	require.ErrorContains(t, err, "404 Not Found; check the path")
	require.EqualValues(t, 1, asked.Load())
}
