package serve

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// said is what a server answers to a request of vLLM's for adapters, whose successes are texts.
func loraSaid(t *testing.T, url, key, body string) (int, string) {
	t.Helper()
	q, err := http.NewRequest("POST", url, strings.NewReader(body))
	require.NoError(t, err)
	q.Header.Set(keyHeader, key)
	r, err := http.DefaultClient.Do(q)
	require.NoError(t, err)
	defer r.Body.Close() //nolint:errcheck // it is only read
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(b)
}

// TestLora: an adapter of the operator's folder is loaded as vLLM's clients ask for it, and draws as it did; others,
// from elsewhere or with another key, are refused, and what is unloaded is gone.
func TestLora(t *testing.T) {
	dir := t.TempDir()
	_, url := teaching(t, TrainOptions{Dir: dir, Adapters: 3})
	code, v := ask(t, "POST", url+"/v1/adapters", "", `{"name": "mine", "seed": 3, "key": "k"}`)
	require.Equal(t, 201, code, v)
	for _, call := range [][2]string{{"forward_backward", lesson(1, 1)}, {"optim_step", `{"lr": 0.3}`}, {"save", `{"label": "one"}`}} {
		code, v = ask(t, "POST", url+"/v1/adapters/mine/"+call[0], "k", call[1])
		require.Equal(t, 200, code, v)
	}
	draw := func(model string) any {
		code, v := ask(t, "POST", url+"/v1/completions", "k", fmt.Sprintf(`{"model": %q, "prompt": "w5 w6", "max_tokens": 8, "seed": 1, "logprobs": 0}`, model))
		require.Equal(t, 200, code, v)
		return v["choices"]
	}
	want := draw("mine")
	require.NotEqual(t, draw("words"), want)
	require.NoError(t, os.Symlink(filepath.Join(dir, "mine"), filepath.Join(dir, "linked")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "mine", ".one"), os.DirFS(filepath.Join(dir, "mine", "one"))))
	load := url + "/v1/load_lora_adapter"
	for body, field := range map[string]string{`{"lora_name": "his", "lora_path": "/etc"}`: "lora_path",
		`{"lora_name": "his", "lora_path": "../mine/one"}`:     "lora_path",
		`{"lora_name": "his", "lora_path": "mine/../../x"}`:    "lora_path",
		`{"lora_name": "his", "lora_path": "linked/one"}`:      "lora_path",
		`{"lora_name": "his", "lora_path": "empty"}`:           "lora_path",
		`{"lora_name": "his", "lora_path": "mine/.one"}`:       "lora_path",
		`{"lora_name": "his", "lora_path": "mine/two"}`:        "lora_path",
		`{"lora_name": "his", "lora_path": ""}`:                "lora_path",
		`{"lora_name": "words", "lora_path": "mine/one"}`:      "lora_name",
		`{"lora_name": "../his", "lora_path": "mine/one"}`:     "lora_name",
		`{"lora_name": "mine", "lora_path": "mine/one"}`:       "loaded already",
		`{"lora_name": 7, "lora_path": "mine/one"}`:            "lora_name",
		`{"lora_name": "his", "lora_path": "mine/one", "x":1}`: `unknown field`} {
		code, text := loraSaid(t, load, "k", body)
		require.Equal(t, 400, code, "%s: %s", body, text)
		require.Contains(t, text, field, body)
	}
	for _, path := range []string{"mine/one", filepath.Join(dir, "mine", "one")} {
		body := fmt.Sprintf(`{"lora_name": "his", "lora_path": %q, "load_inplace": true}`, path)
		code, text := loraSaid(t, load, "", body)
		require.Equal(t, 403, code, text)
		code, text = loraSaid(t, load, "k", body)
		require.Equal(t, 200, code, text)
		require.Equal(t, "Success: LoRA adapter 'his' added successfully.", text)
		require.Equal(t, want, draw("his"))
	}
	code, text := loraSaid(t, url+"/v1/unload_lora_adapter", "", `{"lora_name": "his"}`)
	require.Equal(t, 403, code, text)
	code, text = loraSaid(t, url+"/v1/unload_lora_adapter", "k", `{"lora_name": "his"}`)
	require.Equal(t, 200, code, text)
	code, text = loraSaid(t, url+"/v1/unload_lora_adapter", "k", `{"lora_name": "his"}`)
	require.Equal(t, 404, code, text)
	code, v = ask(t, "POST", url+"/v1/completions", "k", `{"model": "his", "prompt": "w5", "max_tokens": 1}`)
	require.Equal(t, 404, code, v)
	require.Equal(t, want, draw("mine"))
	_, without := served(t, Options{})
	code, text = loraSaid(t, without+"/v1/load_lora_adapter", "", `{"lora_name": "a", "lora_path": "b"}`)
	require.Equal(t, 400, code)
	require.Contains(t, text, "--train")
}
