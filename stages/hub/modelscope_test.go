package hub

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
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

// theirs is ModelScope's list of the files, with their folders.
func (f *fake) theirs() []byte {
	all := []map[string]any{{"Path": "sub", "Type": "tree", "Size": 0}}
	for name, b := range f.files {
		all = append(all, map[string]any{"Path": name, "Type": "blob", "Size": len(b),
			"Sha256": fmt.Sprintf("%x", sha256.Sum256(b))})
	}
	text, _ := json.Marshal(map[string]any{"Code": 200, "Success": true, // maps of texts and numbers
		"Data": map[string]any{"Files": all}})
	return text
}

// scope is a client of the fake as ModelScope.
func (f *fake) scope(t *testing.T) *Client {
	c := NewModelScope(t.TempDir(), func(name string) string {
		return map[string]string{"MODELSCOPE_DOMAIN": f.URL, "MODELSCOPE_API_TOKEN": "theirs"}[name]
	})
	c.Idle, c.Sleep = f.idle(), func(context.Context, time.Duration) error { return nil }
	return c
}

// TestModelScope: what Hugging Face's hub may do on the way, ModelScope's may; repositories of both lie apart, and
// one that is whole is not asked for again.
func TestModelScope(t *testing.T) {
	r, err := ParseRepo("ms://an/model")
	require.NoError(t, err)
	require.Equal(t, Repo{"an/model", "master", ModelScope}, r)
	for _, tricks := range survived {
		f := newFake(t)
		f.tricks = strings.Fields(tricks)
		c := f.scope(t)
		require.Empty(t, c.cached(r))
		dir, err := c.Get(context.Background(), r, nil)
		require.NoError(t, err, tricks)
		f.whole(t, dir)
		require.Equal(t, dir, c.cached(r))
		require.DirExists(t, filepath.Join(c.Cache, "modelscope--an--model"))
		n := len(f.asked)
		again, err := c.Get(context.Background(), r, nil)
		require.NoError(t, err)
		require.Equal(t, dir, again)
		require.Len(t, f.asked, n)
	}
}

// TestModelScopeEnds: a refusal, a list that lies or says no hash, and other contents end with their exit code, and
// the token goes to the hub as its cookie alone.
func TestModelScopeEnds(t *testing.T) {
	r := Repo{"an/model", "master", ModelScope}
	for _, c := range []struct {
		status    int
		list, why string
		code      int
	}{{401, `{"Code": 10010205001, "Message": "not found"}`, "not found", exit.Unreachable},
		{200, `{"Code": 404, "Message": "no such model"}`, "no such model", exit.Unreachable},
		{200, `{"Code": 200, "Data": {"Files": [{"Path": "../x.json", "Type": "blob", "Sha256": "` +
			strings.Repeat("0", 64) + `"}]}}`, "leaves the directory", exit.Corrupt},
		{200, `{"Code": 200, "Data": {"Files": [{"Path": "x.json", "Type": "blob", "Size": 3}]}}`,
			"no size and hash", exit.Corrupt},
		{200, `<html>`, "no JSON", exit.Corrupt}} {
		var cookies []string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			cookies = append(cookies, q.Header.Get("Cookie"))
			require.Empty(t, q.Header.Get("Authorization"))
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.list)
		}))
		f := &fake{Server: s}
		_, err := f.scope(t).Get(context.Background(), r, nil)
		require.ErrorContains(t, err, c.why)
		var coded interface{ ExitCode() int }
		require.ErrorAs(t, err, &coded)
		require.Equal(t, c.code, coded.ExitCode(), c.why)
		require.NotEmpty(t, cookies)
		for _, cookie := range cookies {
			require.Equal(t, "m_session_id=theirs", cookie)
		}
		s.Close()
	}
	f := newFake(t)
	f.tricks = []string{"changed", "changed"}
	c := f.scope(t)
	_, err := c.Get(context.Background(), r, nil)
	require.ErrorContains(t, err, "another file")
	require.Empty(t, c.cached(r))
	left, err := filepath.Glob(filepath.Join(c.Cache, "*", "blobs", fmt.Sprintf("%x",
		sha256.Sum256(f.files["model.safetensors"]))))
	require.NoError(t, err)
	require.Empty(t, left)
	require.Equal(t, "https://www.modelscope.cn", NewModelScope("", func(string) string { return "" }).Endpoint)
	_, err = Have(context.Background(), "ms://an/model", func(name string) string {
		return map[string]string{"HF_HUB_OFFLINE": "1", "HF_HOME": os.TempDir() + "/none"}[name]
	})
	require.ErrorContains(t, err, "HF_HUB_OFFLINE")
}
