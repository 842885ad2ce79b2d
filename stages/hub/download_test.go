package hub

import (
	"context"
	"crypto/sha1" //nolint:gosec // git's names of blobs
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// fake is a hub of one repository. Requests for files take the next of its tricks.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	files   map[string][]byte
	tricks  []string
	asked   []string // ranges of requests for files
	signed  int      // requests with the token
	token   string   // that is wanted, "" for none
	list    string   // in place of the listing
	far     *httptest.Server
	farAuth string // what a redirect's target was sent
}

func newFake(t *testing.T) *fake {
	f := &fake{files: map[string][]byte{"config.json": []byte(`{"model_type": "llama"}`),
		"model.safetensors": make([]byte, 300_000), "sub/tokenizer.json": []byte("{}"), "empty.txt": {},
		"weights.msgpack": []byte("not wanted")}}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range f.files["model.safetensors"] {
		f.files["model.safetensors"][i] = byte(r.Uint32())
	}
	f.Server = httptest.NewServer(f)
	f.far = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.farAuth = r.Header.Get("Authorization")
		f.send(w, r, f.files["model.safetensors"])
	}))
	t.Cleanup(f.Close)
	t.Cleanup(f.far.Close)
	return f
}

// listing is what the hub says of the files.
func (f *fake) listing() []byte {
	var all []map[string]any
	for name, b := range f.files {
		one := map[string]any{"rfilename": name, "size": len(b),
			"blobId": fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(b),
				b)))} //nolint:gosec
		if len(b) > 1000 {
			one["lfs"] = map[string]any{"sha256": fmt.Sprintf("%x", sha256.Sum256(b)), "size": len(b)}
		}
		all = append(all, one)
	}
	text, _ := json.Marshal(map[string]any{"sha": commit, "siblings": all}) // maps of texts and numbers
	return text
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error": "Repository not found"}`)
		return
	}
	if f.token != "" {
		f.signed++
	}
	if strings.HasPrefix(r.URL.Path, "/api/models/an/model/revision/") {
		text := f.listing()
		if f.list != "" {
			text = []byte(f.list)
		}
		w.Write(text)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/an/model/resolve/"+commit+"/")
	switch r.URL.Path {
	case "/api/v1/models/an/model/repo/files":
		w.Write(f.theirs())
		return
	case "/api/v1/models/an/model/repo":
		name, ok = r.URL.Query().Get("FilePath"), r.URL.Query().Get("Revision") == "master"
	}
	b, has := f.files[name]
	if !ok || !has {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	f.asked = append(f.asked, name+" "+r.Header.Get("Range"))
	if len(f.tricks) == 0 || name != "model.safetensors" {
		f.send(w, r, b)
		return
	}
	trick := f.tricks[0]
	f.tricks = f.tricks[1:]
	f.play(trick, w, r, b)
}

// play answers with a trick.
func (f *fake) play(trick string, w http.ResponseWriter, r *http.Request, b []byte) {
	other := make([]byte, len(b))
	switch trick {
	case "stall":
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		w.Write(b[:1000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case "silent":
		<-r.Context().Done()
	case "truncate":
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		w.Write(b[:100_000])
	case "redirect": // as to the bridge of a repository whose contents are Xet's
		w.Header().Set("X-Xet-Hash", strings.Repeat("0", 64))
		w.Header().Add("Link", `<`+f.URL+`/xet-auth>; rel="xet-auth"`)
		http.Redirect(w, r, f.far.URL+"/x", http.StatusFound)
	case "loop":
		http.Redirect(w, r, r.URL.Path, http.StatusFound)
	case "longer":
		w.Write(append(b[:len(b):len(b)], 1, 2, 3))
	case "changed": // the same length, other contents
		f.send(w, r, other)
	case "shorter": // another length
		f.send(w, r, other[:len(b)-7])
	case "deaf": // ranges are not known
		w.Write(b)
	default:
		code, err := strconv.Atoi(trick)
		if err != nil {
			panic(trick)
		}
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(code)
	}
}

// send answers a request, of a range or not.
func (f *fake) send(w http.ResponseWriter, r *http.Request, b []byte) {
	from := 0
	if text := r.Header.Get("Range"); text != "" {
		fmt.Sscanf(text, "bytes=%d-", &from)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(b)-1, len(b)))
		w.WriteHeader(http.StatusPartialContent)
	}
	w.Write(b[min(from, len(b)):])
}

// client is one of the fake, that does not wait.
func (f *fake) client(t *testing.T) (c *Client, waits *[]time.Duration) {
	env := map[string]string{"HF_ENDPOINT": f.URL, "HF_TOKEN_PATH": filepath.Join(t.TempDir(), "none")}
	c = New(t.TempDir(), func(name string) string { return env[name] })
	c.Idle = f.idle()
	waits = new([]time.Duration)
	c.Sleep = func(_ context.Context, d time.Duration) error { *waits = append(*waits, d); return nil }
	return c, waits
}

// idle is for how long no byte comes before a transfer is given up: not long where one is to be, and else
// longer than a busy machine stands still.
func (f *fake) idle() time.Duration {
	if slices.Contains(f.tricks, "stall") || slices.Contains(f.tricks, "silent") {
		return 100 * time.Millisecond
	}
	return time.Minute
}

func get(c *Client) (string, error) {
	return c.Get(context.Background(), Repo{Name: "an/model", Revision: "main"}, nil)
}

// whole holds a snapshot to the hub's files.
func (f *fake) whole(t *testing.T, dir string) {
	t.Helper()
	for name, want := range f.files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if name == "weights.msgpack" {
			require.ErrorIs(t, err, os.ErrNotExist)
			continue
		}
		require.NoError(t, err)
		require.True(t, string(want) == string(got), name)
	}
	left, err := filepath.Glob(filepath.Join(dir, "..", "..", "blobs", "*.incomplete"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// survived are tricks after which the right files are there.
var survived = []string{"", "stall", "silent", "truncate truncate", "redirect", "500 503 502", "429",
	"408", "truncate deaf", "truncate changed", "truncate shorter", "truncate 500 500 500 500 truncate",
	"stall redirect", "changed", "shorter", "truncate redirect"}

// TestGet: whatever the way does, the right files arrive, from where an attempt ended, and a second time
// nothing is asked for again.
func TestGet(t *testing.T) {
	for _, tricks := range survived {
		t.Run(tricks, func(t *testing.T) {
			f := newFake(t)
			f.tricks = strings.Fields(tricks)
			c, waits := f.client(t)
			dir, err := get(c)
			require.NoError(t, err)
			f.whole(t, dir)
			require.Equal(t, commit, filepath.Base(dir))
			ref, err := os.ReadFile(filepath.Join(dir, "..", "..", "refs", "main"))
			require.NoError(t, err)
			require.Equal(t, commit, string(ref))
			switch tricks {
			case "429":
				require.Equal(t, []time.Duration{7 * time.Second}, *waits, "as long as the hub asks")
			case "truncate truncate":
				require.Contains(t, f.asked, "model.safetensors bytes=100000-")
			}
			n := len(f.asked)
			again, err := get(c)
			require.NoError(t, err)
			require.Equal(t, dir, again)
			require.Len(t, f.asked, n)
		})
	}
}

// TestGetEnds: where no attempt can help, or none has, the end says why, with exit code 5 of a hub that
// refuses and 6 of one that lies; no wrong file is under a name.
func TestGetEnds(t *testing.T) {
	many := strings.Repeat("500 ", attemptsMax)
	for _, c := range []struct {
		tricks, why string
		code        int
	}{
		{"403", "its terms may have to be accepted", exit.Unreachable}, {"404", "no such repository",
			exit.Unreachable},
		{many, "the hub answers 500", exit.Unreachable}, {"longer", "more than the 300000 bytes",
			exit.Corrupt},
		{"changed changed", "another file", exit.Corrupt}, {strings.Repeat("loop ", 60), "redirects",
			exit.Unreachable},
		{strings.Repeat("silent ", attemptsMax), "no byte came for", exit.Unreachable},
		{strings.Repeat("shorter ", 100), "bytes that the hub's list says", exit.Unreachable},
	} {
		f := newFake(t)
		f.tricks = strings.Fields(c.tricks)
		client, _ := f.client(t)
		_, err := get(client)
		require.ErrorContains(t, err, c.why)
		var coded interface{ ExitCode() int }
		require.ErrorAs(t, err, &coded, c.why)
		require.Equal(t, c.code, coded.ExitCode(), c.why)
		blob := filepath.Join(client.Cache, "models--an--model", "blobs",
			fmt.Sprintf("%x", sha256.Sum256(f.files["model.safetensors"])))
		require.NoFileExists(t, blob, c.why)
	}
	for list, why := range map[string]string{
		`{"sha": "` + commit + `", "siblings": [{"rfilename": "../x.json", "blobId": "` + commit +
			`"}]}`: "leaves",
		`{"sha": "main", "siblings": []}`:                                                 "names commit",
		`{"sha": "` + commit + `", "siblings": [{"rfilename": "x.json", "blobId": "1"}]}`: "no size and hash",
		`<html>`: "no JSON",
		`{"sha": "` + commit + `", "siblings": []}`: "no files that match"} {
		f := newFake(t)
		f.list = list
		c, _ := f.client(t)
		_, err := get(c)
		require.ErrorContains(t, err, why)
	}
}

// TestToken: a token comes from the usual places, goes to the hub, and to no host that the hub redirects to;
// without one the refusal says how to get one; offline nothing is asked.
func TestToken(t *testing.T) {
	f := newFake(t)
	f.token = "secret"
	c, _ := f.client(t)
	_, err := get(c)
	require.ErrorContains(t, err, "401 Unauthorized: Repository not found; it may be private or gated")
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	for _, env := range []map[string]string{{"HF_TOKEN": "secret"}, {"HF_TOKEN_PATH": file},
		{"HF_HOME": filepath.Dir(file)}, {"HUGGING_FACE_HUB_TOKEN": "secret"}} {
		require.Equal(t, "secret", token(func(name string) string { return env[name] }), env)
	}
	c.Token, f.tricks = "secret", []string{"redirect"}
	dir, err := get(c) // to another port of the same host
	require.NoError(t, err)
	f.whole(t, dir)
	require.Empty(t, f.farAuth)
	c, _ = f.client(t)
	c.Token, f.tricks = "secret", []string{"redirect"}
	f.far.URL = strings.Replace(f.far.URL, "127.0.0.1", "localhost", 1)
	dir, err = get(c)
	require.NoError(t, err)
	f.whole(t, dir)
	require.Empty(t, f.farAuth)
	c.Token = "wrong"
	_, err = get(c)
	require.ErrorContains(t, err, "the token is not valid")
	c.offline = true
	_, err = get(c)
	require.ErrorContains(t, err, "HF_HUB_OFFLINE")
}

// TestParseRepo: names with a revision, and what is none.
func TestParseRepo(t *testing.T) {
	for text, want := range map[string]Repo{"hf://a/b": {Name: "a/b", Revision: "main"}, "a/b-1.5@v2/x": {Name: "a/b-1.5",
		Revision: "v2/x"}} {
		got, err := ParseRepo(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"a", "hf://a", "a/b/c", "/a/b", "a/b@../c", "a/..@x", ""} {
		_, err := ParseRepo(text)
		require.Error(t, err, text)
	}
}
