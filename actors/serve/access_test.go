package serve

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOwn: what pages of other sites send is refused, by their origin or by a name that they have given this host;
// clients that are no browsers go through, and with a token under any name.
func TestOwn(t *testing.T) {
	for _, c := range []struct {
		token, host, origin, site string
		code                      int
	}{
		{"", "127.0.0.1:8000", "", "", 200},
		{"", "localhost:9", "", "", 200},
		{"", "localhost", "", "", 200},
		{"", "[::1]:8000", "", "", 200},
		{"", "[::1]", "", "", 200},
		{"", "evil.example:8000", "", "", 421},
		{"", "localhost.evil.example", "", "", 421},
		{"", "127.0.0.1.evil.example:8000", "", "", 421},
		{"", "", "", "", 421},
		{"t", "models.example", "", "", 200},
		{"", "127.0.0.1:8000", "http://127.0.0.1:8000", "same-origin", 200},
		{"", "127.0.0.1:8000", "http://127.0.0.1:8001", "", 403},
		{"", "127.0.0.1:8000", "https://evil.example", "", 403},
		{"", "127.0.0.1:8000", "null", "", 403},
		{"t", "models.example", "https://models.example", "", 200},
		{"t", "models.example", "https://evil.example", "", 403},
		{"t", "models.example", "", "cross-site", 403},
		{"", "127.0.0.1:8000", "", "none", 200},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		w := httptest.NewRecorder()
		Own(c.token, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		require.Equal(t, c.code, w.Code, "%+v", c)
	}
}

// TestUnlinked: a link in the folder of adapters, to a folder, in one, or for a key, is not followed.
func TestUnlinked(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	o := &TrainOptions{Dir: dir}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "mine", "good"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine", "good", "adapter_config.json"), nil, 0o600))
	require.NoError(t, o.unlinked("mine", "good"))
	require.NoError(t, o.unlinked("mine", "new"), "it is not there yet")
	require.NoError(t, o.unlinked("nobody", "new"))
	require.NoError(t, os.Symlink(other, filepath.Join(dir, "planted")))
	require.ErrorContains(t, o.unlinked("planted", "new"), "is a link")
	require.NoError(t, os.Symlink(other, filepath.Join(dir, "mine", "away")))
	require.ErrorContains(t, o.unlinked("mine", "away"), "is a link")
	require.NoError(t, os.Symlink(other, filepath.Join(dir, "mine", ".new.partial")))
	require.ErrorContains(t, o.unlinked("mine", "new"), "is a link")
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "mine", "good", "adapter_model.safetensors")))
	require.ErrorContains(t, o.unlinked("mine", "good"), "is a link")
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, ".keyed.key")))
	require.ErrorContains(t, o.unlinked("keyed", "new"), "is a link")
}
