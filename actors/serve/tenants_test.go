package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// teaching serves a small model whose clients train adapters.
func teaching(t *testing.T, o TrainOptions) (*Server, string) {
	t.Helper()
	o.Rank, o.Alpha, o.Targets = 4, 8, []string{"*_proj"}
	if o.Adapters == 0 {
		o.Adapters = 6
	}
	if o.Rows == 0 {
		o.Rows = 64
	}
	o.Most = 512
	return served(t, Options{Train: &o})
}

// ask sends a request with an adapter's key, and returns the status and the answer.
func ask(t *testing.T, method, url, key, body string) (int, map[string]any) {
	t.Helper()
	q, err := http.NewRequest(method, url, strings.NewReader(body))
	require.NoError(t, err)
	q.Header.Set(keyHeader, key)
	r, err := http.DefaultClient.Do(q)
	require.NoError(t, err)
	defer r.Body.Close() //nolint:errcheck // it is only read
	var v map[string]any
	require.NoError(t, json.NewDecoder(r.Body).Decode(&v))
	return r.StatusCode, v
}

// lesson is what a tenant learns in a step.
func lesson(tenant, step int) string {
	var data []string
	for i := range 1 + (tenant+step)%3 {
		data = append(data, fmt.Sprintf(`{"tokens": [%d, %d, 9, 10], "targets": [%d, 9, 10, %d], "weights": [1, 1, 0.5, 2]}`,
			3+tenant, 5+i, 5+i, 11+step))
	}
	return `{"data": [` + strings.Join(data, ",") + `]}`
}

// life is all that a tenant sees of its run.
func life(t *testing.T, url string, tenant int) (out []any) {
	t.Helper()
	name := fmt.Sprintf("tenant-%d", tenant)
	code, v := ask(t, "POST", url+"/v1/adapters", "", fmt.Sprintf(`{"name": %q, "seed": %d}`, name, tenant))
	require.Equal(t, 201, code, v)
	at := url + "/v1/adapters/" + name
	for step := range 4 {
		code, v = ask(t, "POST", at+"/forward_backward", "", lesson(tenant, step))
		require.Equal(t, 200, code, v)
		out = append(out, v["loss"], v["logprobs"])
		code, v = ask(t, "POST", at+"/optim_step", "", `{"lr": 0.05, "clip": 1}`)
		require.Equal(t, 200, code, v)
		require.Equal(t, float64(step+1), v["step"])
		out = append(out, v["grad_norm"])
		code, v = ask(t, "POST", url+"/v1/completions", "", fmt.Sprintf(`{"model": %q, "prompt": [[3, 4, 5]], "max_tokens": 6, "seed": 1,
			"logprobs": 1, "return_token_ids": true, "n": 2}`, name))
		require.Equal(t, 200, code, v)
		require.Equal(t, name, v["model"])
		out = append(out, v["choices"])
	}
	return out
}

// TestTenants: what a tenant sees of its run, losses, log-probabilities, norms and answers, is the same alone and
// beside others, to the bit; and it learns.
func TestTenants(t *testing.T) {
	const n = 5
	var alone [n][]any
	for k := range n {
		_, url := teaching(t, TrainOptions{Adapters: 1})
		alone[k] = life(t, url, k)
		require.Less(t, alone[k][12].(float64), alone[k][0].(float64))
	}
	s, url := teaching(t, TrainOptions{})
	var together [n][]any
	var all sync.WaitGroup
	for k := range n {
		all.Go(func() { together[k] = life(t, url, k) })
	}
	all.Wait()
	require.Equal(t, alone, together)
	stats := s.loop.trained()
	require.Equal(t, int64(4*n), stats.pieces)
	_, v := ask(t, "GET", url+"/v1/adapters", "", "")
	require.Len(t, v["data"], n)
	require.Equal(t, 1.0, v["room"])
	_, v = ask(t, "GET", url+"/v1/models", "", "")
	require.Len(t, v["data"], n+1)
}

// TestSaved: an adapter that was saved and loaded into another gives the other's answers; PEFT's files are there.
func TestSaved(t *testing.T) {
	dir := t.TempDir()
	_, url := teaching(t, TrainOptions{Dir: dir})
	life(t, url, 1)
	says := func(name string) any {
		code, v := ask(t, "POST", url+"/v1/completions", "", fmt.Sprintf(
			`{"model": %q, "prompt": [[3, 4, 5, 6]], "max_tokens": 8, "seed": 1, "logprobs": 2}`, name))
		require.Equal(t, 200, code, v)
		return v["choices"]
	}
	want := says("tenant-1")
	one, two := url+"/v1/adapters/tenant-1", url+"/v1/adapters/two"
	code, v := ask(t, "POST", one+"/save", "", `{"label": "first"}`)
	require.Equal(t, 200, code, v)
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		require.FileExists(t, filepath.Join(dir, "tenant-1", "first", name))
	}
	code, v = ask(t, "POST", one+"/save", "", `{"label": "first"}`)
	require.Equal(t, 400, code, v)
	code, _ = ask(t, "POST", url+"/v1/adapters", "", `{"name": "two", "seed": 7}`)
	require.Equal(t, 201, code)
	require.Equal(t, says("words"), says("two"), "a new adapter adds nothing")
	require.NotEqual(t, want, says("two"))
	code, v = ask(t, "POST", two+"/load", "", `{"label": "first", "adapter": "tenant-1"}`)
	require.Equal(t, 200, code, v)
	require.Equal(t, want, says("two"))
	config := filepath.Join(dir, "tenant-1", "first", "adapter_config.json")
	b, err := os.ReadFile(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config, bytes.Replace(b, []byte(`"r": 4`), []byte(`"r": 8`), 1), 0o644))
	code, v = ask(t, "POST", two+"/load", "", `{"label": "first", "adapter": "tenant-1"}`)
	require.Equal(t, 400, code)
	require.Contains(t, at(v, "error", "message"), "its rank is 8")
	require.Equal(t, want, says("two"))
	code, _ = ask(t, "DELETE", two, "", "")
	require.Equal(t, 200, code)
	code, _ = ask(t, "POST", two+"/forward", "", lesson(0, 0))
	require.Equal(t, 404, code)
}

// TestState: an adapter that was saved with its optimizer's state goes on elsewhere with the bits of one that never
// stopped; one without it does not, and asking for state that is not there changes nothing.
func TestState(t *testing.T) {
	dir := t.TempDir()
	_, url := teaching(t, TrainOptions{Dir: dir})
	life(t, url, 1)
	one := url + "/v1/adapters/tenant-1"
	for label, state := range map[string]string{"with": "true", "without": "false"} {
		code, v := ask(t, "POST", one+"/save", "", fmt.Sprintf(`{"label": %q, "state": %s}`, label, state))
		require.Equal(t, 200, code, v)
	}
	goes := func(at string) (out []any) {
		for step := 4; step < 7; step++ {
			_, v := ask(t, "POST", at+"/forward_backward", "", lesson(1, step))
			out = append(out, v["loss"], v["logprobs"])
			code, v := ask(t, "POST", at+"/optim_step", "", `{"lr": 0.05, "clip": 1}`)
			require.Equal(t, 200, code, v)
			out = append(out, v["step"], v["grad_norm"])
		}
		return out
	}
	want := goes(one)
	_, other := teaching(t, TrainOptions{Dir: dir, Adapters: 2})
	for label, state := range map[string]bool{"with": true, "without": false} {
		code, v := ask(t, "POST", other+"/v1/adapters", "", fmt.Sprintf(`{"name": %q}`, label))
		require.Equal(t, 201, code, v)
		at := other + "/v1/adapters/" + label
		code, v = ask(t, "POST", at+"/load", "", `{"label": "without", "adapter": "tenant-1", "state": true}`)
		require.Equal(t, 400, code, v)
		code, v = ask(t, "POST", at+"/load", "", fmt.Sprintf(`{"label": %q, "adapter": "tenant-1", "state": %v}`, label, state))
		require.Equal(t, 200, code, v)
		if got := goes(at); state {
			require.Equal(t, want, got)
		} else {
			require.Equal(t, want[:2], got[:2])
			require.NotEqual(t, want[4:], got[4:])
		}
	}
}

// TestTenantsRefused: what means nothing is refused and changes nothing; keys keep others out; adapters have bounds.
func TestTenantsRefused(t *testing.T) {
	_, url := teaching(t, TrainOptions{Adapters: 2})
	code, v := ask(t, "POST", url+"/v1/adapters", "", `{"name": "a", "key": "secret"}`)
	require.Equal(t, 201, code, v)
	for body, want := range map[string]int{`{"name": "a"}`: 409, `{"name": "../x"}`: 400, `{"name": "words"}`: 400, `{}`: 400,
		`{"name": "b", "rank": 3}`: 400} {
		code, v := ask(t, "POST", url+"/v1/adapters", "", body)
		require.Equal(t, want, code, "%s: %v", body, v)
	}
	at1 := url + "/v1/adapters/a"
	for _, path := range []string{"/forward_backward", "/optim_step", "/save", "/load"} {
		code, _ = ask(t, "POST", at1+path, "wrong", lesson(0, 0))
		require.Equal(t, 403, code, path)
	}
	code, _ = ask(t, "POST", url+"/v1/completions", "", `{"model": "a", "prompt": "w3"}`)
	require.Equal(t, 403, code)
	for body, want := range map[string]string{
		`{"data": []}`: "there is no data", `{"data": [{"tokens": [1], "targets": [99]}]}`: "is id 99",
		`{"data": [{"tokens": [1], "targets": [1], "colour": 1}]}`:                   "unknown field",
		`{"data": [{"tokens": [1], "targets": [1]}], "loss": "hope"}`:                `the loss is "hope"`,
		`{"data": [{"tokens": [1], "targets": [1]}], "clip": [0.1, 0.1]}`:            "clip has no effect",
		`{"data": [{"tokens": [1], "targets": [1], "weights": [1e39]}]}`:             "not understood",
		`{"data": [{"tokens": [` + strings.Repeat("1,", 64) + `1], "targets": []}]}`: "has 65 tokens",
	} {
		code, v := ask(t, "POST", at1+"/forward_backward", "secret", body)
		require.Equal(t, 400, code, body)
		require.Contains(t, at(v, "error", "message"), want)
	}
	code, v = ask(t, "POST", at1+"/optim_step", "secret", `{}`)
	require.Equal(t, 400, code)
	require.Contains(t, at(v, "error", "message"), "no gradient")
	code, v = ask(t, "POST", at1+"/optim_step", "secret", `{"lr": -1}`)
	require.Equal(t, 400, code)
	require.Contains(t, at(v, "error", "message"), "lr is -1")
	code, v = ask(t, "POST", at1+"/save", "secret", `{"label": "x"}`)
	require.Contains(t, at(v, "error", "message"), "--adapters-dir")
	require.Equal(t, 400, code)
	code, _ = ask(t, "POST", url+"/v1/adapters", "", `{"name": "b"}`)
	require.Equal(t, 201, code)
	code, _ = ask(t, "POST", url+"/v1/adapters", "", `{"name": "c"}`)
	require.Equal(t, 429, code)
	_, plain := served(t, Options{})
	code, _ = ask(t, "POST", plain+"/v1/adapters", "", `{"name": "a"}`)
	require.Equal(t, 404, code)
}

// TestGate: those who may be together are, nobody overtakes who wants to be alone, and who goes away is passed over.
func TestGate(t *testing.T) {
	var g gate
	ctx := context.Background()
	require.NoError(t, g.enter(ctx, false))
	require.NoError(t, g.enter(ctx, false))
	gone, cancel := context.WithCancel(ctx)
	left := make(chan error)
	go func() { left <- g.enter(gone, true) }()
	require.Eventually(t, func() bool { return g.waiting() == 1 }, 10*time.Second, time.Millisecond)
	behind := make(chan error)
	go func() { behind <- g.enter(ctx, false) }()
	require.Eventually(t, func() bool { return g.waiting() == 2 }, 10*time.Second, time.Millisecond)
	cancel()
	require.Error(t, <-left)
	require.NoError(t, <-behind)
	for range 3 {
		g.leave(false)
	}
	require.NoError(t, g.enter(ctx, true))
	g.leave(true)
	require.Zero(t, g.inside)
}
