package ui

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// asker asks a page in a session: an origin "here" is the page's own.
type asker func(method, path, origin, body string) (int, string)

// sessionOf begins a session by the next link.
func sessionOf(t *testing.T, s started) asker {
	link := s.link(t)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	base := link[:strings.Index(link, "/login")]
	ask := func(method, url, origin, body string) (int, string) {
		r, err := http.NewRequest(method, url, bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		a, err := (&http.Client{Jar: jar}).Do(r)
		require.NoError(t, err)
		defer a.Body.Close()
		b, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		return a.StatusCode, string(b)
	}
	code, text := ask("GET", link, "", "")
	require.Equal(t, 200, code, text)
	return func(method, path, origin, body string) (int, string) {
		return ask(method, base+path, strings.ReplaceAll(origin, "here", base), body)
	}
}

// TestTalk: whoever may stop runs may talk to the newest checkpoint of one, on the page that lfactor serve has; who may
// only look may not, and neither may another page.
func TestTalk(t *testing.T) {
	dir := clitest.TinyRun(t)
	code, text := clitest.RunIn(t, dir, nil, "train", "run.yaml")
	require.Equal(t, 0, code, text)
	s := start(t, dir, false, "ui", "--admin", "run")
	session := func() asker { return sessionOf(t, s) }
	view := session()
	code, text = view("GET", "/runs/0/talk/", "", "")
	require.Equal(t, 403, code, text)
	admin := session()
	if code, text = admin("GET", "/runs/0/talk/", "", ""); code == 403 { // the viewer's link was given out again first
		admin = session()
		code, text = admin("GET", "/runs/0/talk/", "", "")
	}
	require.Equal(t, 200, code, text)
	require.Contains(t, text, `src="page/chat.js"`)
	code, text = admin("GET", "/runs/0/talk/page/chat.js", "", "")
	require.Equal(t, 200, code, text)
	code, text = admin("GET", "/runs/0/talk/v1/models", "", "")
	require.Equal(t, 200, code, text)
	var models struct{ Data []struct{ ID string } }
	require.NoError(t, json.Unmarshal([]byte(text), &models))
	body := `{"model": "` + models.Data[0].ID + `", "prompt": "func", "max_tokens": 4}`
	code, text = admin("POST", "/runs/0/talk/v1/completions", "here", body)
	require.Equal(t, 200, code, text)
	require.Contains(t, text, `"finish_reason"`)
	for _, origin := range []string{"", "http://elsewhere"} {
		code, text = admin("POST", "/runs/0/talk/v1/completions", origin, body)
		require.Equal(t, 403, code, text)
	}
	for path, want := range map[string]int{"/runs/1/talk/": 404, "/runs/x/talk/": 404, "/runs/0/talk/v1/none": 404} {
		code, text = admin("GET", path, "", "")
		require.Equal(t, want, code, text)
	}
}
