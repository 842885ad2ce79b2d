package hub

import (
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

	"github.com/lfactor/lfactor/configs/exit"
)

// scopeTaker is ModelScope where directories are put.
type scopeTaker struct {
	*httptest.Server
	t       *testing.T
	made    map[string]any // the repository, nil for none
	blobs   map[string][]byte
	files   map[string][]byte
	actions map[string]string
	fail    int    // contents that are refused for now
	says    string // in place of an answer to a commit
}

func (k *scopeTaker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	require.NoError(k.t, err)
	require.Equal(k.t, "m_session_id=theirs", r.Header.Get("Cookie"))
	answer := func(data any) {
		text, err := json.Marshal(map[string]any{"Code": 200, "Success": true, "Data": data})
		require.NoError(k.t, err)
		w.Write(text)
	}
	switch p := r.URL.Path; {
	case p == "/api/v1/models":
		require.NoError(k.t, json.Unmarshal(body, &k.made))
		answer(nil)
	case strings.HasSuffix(p, "/repo/files"):
		if k.made == nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		var all []map[string]any
		for name, b := range k.files {
			all = append(all, map[string]any{"Path": name, "Type": "blob", "Size": len(b),
				"Sha256": fmt.Sprintf("%x", sha256.Sum256(b))})
		}
		answer(map[string]any{"Files": all})
	case strings.HasSuffix(p, "/an/model/info/lfs/objects/batch"):
		var ask struct{ Objects []struct{ OID string } }
		require.NoError(k.t, json.Unmarshal(body, &ask))
		var out []map[string]any
		for _, o := range ask.Objects {
			if k.blobs[o.OID] == nil {
				out = append(out, map[string]any{"oid": o.OID,
					"actions": map[string]any{"upload": map[string]any{
						"href": k.URL + "/put/" + o.OID}}})
			}
		}
		answer(map[string]any{"objects": out})
	case strings.HasPrefix(p, "/put/"):
		if k.fail > 0 {
			k.fail--
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		k.blobs[strings.TrimPrefix(p, "/put/")] = body
		answer(nil)
	case strings.HasSuffix(p, "/an/model/commit/master"):
		k.commit(w, body, answer)
	default:
		k.t.Errorf("%s is asked for", p)
	}
}

func (k *scopeTaker) commit(w http.ResponseWriter, body []byte, answer func(any)) {
	if k.says != "" {
		fmt.Fprint(w, k.says)
		return
	}
	var c struct {
		Actions []struct{ Action, Path, Type, Sha256, Content string }
	}
	require.NoError(k.t, json.Unmarshal(body, &c))
	for _, a := range c.Actions {
		k.actions[a.Path] = a.Action + " " + a.Type
		if k.files[a.Path] = k.blobs[a.Sha256]; a.Type == "normal" {
			var err error
			k.files[a.Path], err = base64.StdEncoding.DecodeString(a.Content)
			require.NoError(k.t, err)
		}
	}
	answer(nil)
}

// TestModelScopePut: a directory arrives whole in a repository that is made, also when the hub fails on the way; what
// it has is not sent again, and what it refuses ends with what it says.
func TestModelScopePut(t *testing.T) {
	dir := t.TempDir()
	want := map[string][]byte{"config.json": []byte("{}"), "sub/notes.txt": []byte("é"), "small.bin": {0xff,
		0xfe},
		"model.safetensors": bytes.Repeat([]byte("weights "), 1<<18)}
	for name, b := range want {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	k := &scopeTaker{t: t, blobs: map[string][]byte{}, files: map[string][]byte{},
		actions: map[string]string{}, fail: 2}
	k.Server = httptest.NewServer(k)
	t.Cleanup(k.Close)
	c := NewModelScope(t.TempDir(), func(name string) string {
		return map[string]string{"MODELSCOPE_DOMAIN": k.URL, "MODELSCOPE_API_TOKEN": "theirs"}[name]
	})
	c.Sleep = func(context.Context, time.Duration) error { return nil }
	r, err := ParseRepo("ms://an/model")
	require.NoError(t, err)
	done, err := c.Put(context.Background(), dir, r, "first", true)
	require.NoError(t, err)
	require.Equal(t, Done{4, 2, "master"}, done)
	require.Equal(t, want, k.files)
	require.Equal(t, []any{"an", "model", 1.0}, []any{k.made["Path"], k.made["Name"], k.made["Visibility"]})
	require.Equal(t, map[string]string{"config.json": "create normal", "sub/notes.txt": "create normal",
		"small.bin": "create lfs", "model.safetensors": "create lfs"}, k.actions)
	done, err = c.Put(context.Background(), dir, r, "again", true)
	require.NoError(t, err)
	require.Equal(t, Done{4, 0, "master"}, done)
	require.Equal(t, "update lfs", k.actions["model.safetensors"])
	coded := func(why string, code int) {
		t.Helper()
		_, err := c.Put(context.Background(), dir, r, "", false)
		require.ErrorContains(t, err, why)
		var e interface{ ExitCode() int }
		require.ErrorAs(t, err, &e)
		require.Equal(t, code, e.ExitCode())
	}
	k.says = `{"Code": 200, "Success": false, "Message": "no such branch"}`
	coded("no such branch", exit.Unreachable)
	k.says = `<html>`
	coded("no JSON", exit.Corrupt)
	k.says, k.fail = "", 100
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other.bin"), []byte{0xff}, 0o644))
	coded("other.bin: the hub answers 502", exit.Unreachable)
}

// TestModelScopeList: where the list of a repository fails, none is made and nothing is committed.
func TestModelScopeList(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o644))
	for _, answer := range []string{"<html>busy", `{"Code": 500, "Message": "internal"}`} {
		posts := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				posts++
			}
			_, _ = w.Write([]byte(answer)) // to the test itself
		}))
		c := NewModelScope(t.TempDir(), func(name string) string {
			return map[string]string{"MODELSCOPE_DOMAIN": s.URL, "MODELSCOPE_API_TOKEN": "theirs"}[name]
		})
		c.Sleep = func(context.Context, time.Duration) error { return nil }
		r, err := ParseRepo("ms://an/model")
		require.NoError(t, err)
		_, err = c.Put(context.Background(), dir, r, "", false)
		require.Error(t, err)
		require.Zero(t, posts, answer)
		s.Close()
	}
}
