package hub

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
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

// taker is a hub that takes files: large ones in parts of its size, 0 for whole.
type taker struct {
	*httptest.Server
	t     *testing.T
	parts int
	way   string // that the hub takes large files by, "" for what is usual
	made  map[string]bool
	lfs   map[string][]byte // contents by hash
	got   map[int][]byte
	fail  int // so many answers of 500 to contents
	files map[string][]byte
	token []string // of requests for contents
}

func newTaker(t *testing.T) *taker {
	k := &taker{t: t, made: map[string]bool{}, lfs: map[string][]byte{}, got: map[int][]byte{},
		files: map[string][]byte{}}
	k.Server = httptest.NewServer(k)
	t.Cleanup(k.Close)
	return k
}

func (k *taker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) } // who asked sees what comes
	var in map[string]any
	_ = json.Unmarshal(body, &in) // of requests that are JSON
	switch path := r.URL.Path; {
	case path == "/api/repos/create":
		if k.made["x"] {
			w.WriteHeader(http.StatusConflict)
			return
		}
		k.made["x"] = true
		answer(map[string]string{"url": "x"})
	case strings.HasPrefix(path, "/api/models/an/model/preupload/"):
		var out []map[string]any
		for _, f := range in["files"].([]any) {
			name := f.(map[string]any)["path"].(string)
			mode := "regular"
			if strings.HasSuffix(name, ".safetensors") {
				mode = "lfs"
			}
			out = append(out, map[string]any{"path": name, "uploadMode": mode})
		}
		answer(map[string]any{"files": out})
	case path == "/an/model.git/info/lfs/objects/batch":
		answer(map[string]any{"objects": k.batch(in), "transfer": k.way})
	case strings.HasPrefix(path, "/put/"):
		k.take(w, r, body)
	case path == "/done":
		var all []byte
		for i := range len(k.got) {
			all = append(all, k.got[i+1]...)
		}
		k.lfs[in["oid"].(string)] = all
	case path == "/verify":
		if b, ok := k.lfs[in["oid"].(string)]; !ok || float64(len(b)) != in["size"] {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	case strings.HasPrefix(path, "/api/models/an/model/commit/"):
		k.commit(body)
		answer(map[string]string{"commitOid": commit})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// batch says where contents go that are not there.
func (k *taker) batch(in map[string]any) (out []any) {
	for _, o := range in["objects"].([]any) {
		o := o.(map[string]any)
		oid, size := o["oid"].(string), int(o["size"].(float64))
		one := map[string]any{"oid": oid, "size": size}
		if _, have := k.lfs[oid]; !have {
			up := map[string]any{"href": k.URL + "/put/0/" + oid}
			if k.parts > 0 {
				header := map[string]string{"chunk_size": fmt.Sprint(k.parts)}
				for i := range (size + k.parts - 1) / k.parts {
					header[fmt.Sprintf("%05d", i+1)] = fmt.Sprintf("%s/put/%d/%s", k.URL, i+1, oid)
				}
				up = map[string]any{"href": k.URL + "/done", "header": header}
			}
			one["actions"] = map[string]any{"upload": up, "verify": map[string]any{"href": k.URL + "/verify"}}
		}
		out = append(out, one)
	}
	return out
}

// take takes contents.
func (k *taker) take(w http.ResponseWriter, r *http.Request, body []byte) {
	k.token = append(k.token, r.Header.Get("Authorization"))
	if k.fail > 0 {
		k.fail--
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	var part int
	var oid string
	fmt.Sscanf(r.URL.Path, "/put/%d/%s", &part, &oid)
	w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint(part)))
	if part == 0 {
		k.lfs[oid] = body
		return
	}
	k.got[part] = body
}

// commit keeps the files of a commit.
func (k *taker) commit(body []byte) {
	for s := bufio.NewScanner(bytes.NewReader(body)); s.Scan(); {
		var line struct {
			Key   string
			Value struct{ Path, Content, OID string }
		}
		require.NoError(k.t, json.Unmarshal(s.Bytes(), &line))
		switch line.Key {
		case "file":
			text, err := base64.StdEncoding.DecodeString(line.Value.Content)
			require.NoError(k.t, err)
			k.files[line.Value.Path] = text
		case "lfsFile":
			require.Contains(k.t, k.lfs, line.Value.OID)
			k.files[line.Value.Path] = k.lfs[line.Value.OID]
		}
	}
}

// TestPut: a directory arrives whole, in parts or not, also when the hub fails on the way; contents that
// it has are not sent again, and addresses that are signed do not get the token.
func TestPut(t *testing.T) {
	dir := t.TempDir()
	want := map[string][]byte{"config.json": []byte("{}"), "sub/notes.txt": []byte("é"),
		"model.safetensors": bytes.Repeat([]byte("weights "), 5000)}
	for name, b := range want {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".hidden"), []byte("x"), 0o644))
	for _, parts := range []int{0, 7000} {
		k := newTaker(t)
		k.parts, k.fail = parts, 2
		c := New(t.TempDir(), func(name string) string {
			return map[string]string{"HF_ENDPOINT": k.URL, "HF_TOKEN": "secret"}[name]
		})
		c.Sleep = func(context.Context, time.Duration) error { return nil }
		r := Repo{Name: "an/model", Revision: "main"}
		done, err := c.Put(context.Background(), dir, r, "first", true)
		require.NoError(t, err)
		require.Equal(t, Done{3, 1, commit}, done)
		require.Equal(t, want, k.files)
		require.Equal(t, want["model.safetensors"],
			k.lfs[fmt.Sprintf("%x", sha256.Sum256(want["model.safetensors"]))])
		for _, sent := range k.token {
			require.Empty(t, sent)
		}
		done, err = c.Put(context.Background(), dir, r, "again", true)
		require.NoError(t, err)
		require.Equal(t, Done{3, 0, commit}, done)
		k.fail = 100
		require.NoError(t, os.WriteFile(filepath.Join(dir, "other.safetensors"), []byte("new"), 0o644))
		_, err = c.Put(context.Background(), dir, r, "fails", true)
		require.ErrorContains(t, err, "other.safetensors: the hub answers 500")
		k.way = "xet"
		_, err = c.Put(context.Background(), dir, r, "xet alone", true)
		require.ErrorContains(t, err, `by "xet" alone, which is not spoken here`)
		require.NoError(t, os.Remove(filepath.Join(dir, "other.safetensors")))
	}
	_, err := New("", func(string) string { return "" }).Put(context.Background(), t.TempDir(), Repo{Name: "a/b",
		Revision: "main"}, "", false)
	require.ErrorContains(t, err, "has no files")
}
