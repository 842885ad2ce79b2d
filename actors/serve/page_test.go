package serve

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	_ "github.com/lfactor/lfactor/dataset/format" // reads what was kept
)

// TestPage: the page and its files want no other site and no token; what they ask wants it where there is one.
func TestPage(t *testing.T) {
	_, at := served(t, Options{Token: "secret"})
	for path, want := range map[string]string{"/": `src="page/chat.js"`, "/page/chat.js": "top_logprobs", "/page/chat.css": ".answer"} {
		r, err := http.Get(at + path)
		require.NoError(t, err)
		b, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, 200, r.StatusCode, path)
		require.Contains(t, string(b), want)
		require.NotContains(t, string(b), "https://", path)
		require.Contains(t, r.Header.Get("Content-Security-Policy"), "default-src 'none'")
	}
	for _, path := range []string{"/page/about", "/page/other.js"} {
		r, err := http.Get(at + path)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, map[string]int{"/page/about": 401, "/page/other.js": 404}[path], r.StatusCode)
	}
}

const keptPair = `{"prompt": [{"role": "user", "content": "w5"}], "chosen": [{"role": "assistant", "content": "w6"}],
	"rejected": [{"role": "assistant", "content": "w7"}]}`

// TestPairs: a pair that is kept is a line of data of preferences; one that training could not read is refused, and without
// a file none is kept.
func TestPairs(t *testing.T) {
	_, none := served(t, Options{})
	code, v := post(t, none+"/page/pairs", keptPair)
	require.Equal(t, 404, code, v)
	file := filepath.Join(t.TempDir(), "pairs.jsonl")
	_, here := served(t, Options{Pairs: file})
	for range 2 {
		code, v = post(t, here+"/page/pairs", keptPair)
		require.Equal(t, 200, code, v)
	}
	for text, why := range map[string]string{`{"prompt": "a", "chosen": "b"}`: "rejected", `{"prompt": "a", "pick": 1}`: "pick"} {
		code, v = post(t, here+"/page/pairs", text)
		require.Equal(t, 400, code, v)
		require.Contains(t, at(v, "error", "message"), why)
	}
	s, err := dataset.Open(file, dataset.Options{Format: "preference"})
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // it is only read
	require.EqualValues(t, 2, s.Len())
	require.NoError(t, os.Chmod(file, 0))
	if os.Getuid() != 0 { // whom no mode keeps out
		code, v = post(t, here+"/page/pairs", keptPair)
		require.Equal(t, 500, code, v)
	}
}

// TestBeside: another server's models and answers come through, with the token that is shown, and no more of it; where it
// is not there, that is said.
func TestBeside(t *testing.T) {
	other, there := served(t, Options{Token: "secret"})
	other.o.Name = "other"
	to, err := url.Parse(there)
	require.NoError(t, err)
	_, here := served(t, Options{Token: "secret", Beside: to})
	ask := func(method, path, token string) (int, string) {
		r, err := http.NewRequest(method, here+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Origin", here)
		a, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer a.Body.Close() //nolint:errcheck // it is only read
		b, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		return a.StatusCode, string(b)
	}
	code, text := ask(http.MethodGet, "/beside/v1/models", "secret")
	require.Equal(t, 200, code, text)
	require.Contains(t, text, `"id":"other"`)
	code, _ = ask(http.MethodGet, "/beside/v1/models", "wrong")
	require.Equal(t, 401, code)
	code, _ = ask(http.MethodGet, "/beside/metrics", "secret")
	require.Equal(t, 404, code)
	gone := *to
	gone.Host = "127.0.0.1:1"
	_, here = served(t, Options{Token: "secret", Beside: &gone})
	code, text = ask(http.MethodGet, "/beside/v1/models", "secret")
	require.Equal(t, 502, code)
	require.Contains(t, text, "the server of --beside, http://127.0.0.1:1, gives no answer")
}
