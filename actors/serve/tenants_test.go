package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
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
	stats := s.loop().trained()
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

// taken tells whether those inside a gate have so much of its room: nothing, or all.
func taken(g *gate, n int64) bool {
	free := g.weight(n == 0) // which is to be had, or is not
	if !g.room.TryAcquire(free) {
		return n > 0
	}
	g.room.Release(free)
	return n == 0
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
	require.Eventually(t, func() bool { return g.waiting() == 1 }, 2*time.Minute, time.Millisecond)
	behind := make(chan error)
	go func() { behind <- g.enter(ctx, false) }()
	require.Eventually(t, func() bool { return g.waiting() == 2 }, 2*time.Minute, time.Millisecond)
	cancel()
	require.Error(t, <-left)
	require.NoError(t, <-behind)
	for range 3 {
		g.leave(false)
	}
	require.NoError(t, g.enter(ctx, true))
	g.leave(true)
	require.True(t, taken(&g, 0))
}

// TestComings: adapters come and go at once, also while the loop is in a step, and the loop goes on.
func TestComings(t *testing.T) {
	const rounds, each = 20, 4
	s, url := teaching(t, TrainOptions{Adapters: 2 * each})
	call := func(method, path, body string) {
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(body)))
	}
	create := func(round, k int) { call("POST", "/v1/adapters", fmt.Sprintf(`{"name": "x%d-%d"}`, round, k)) }
	for k := range each {
		create(0, k)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for round := range rounds {
			held, free := make(chan struct{}), make(chan struct{})
			var all sync.WaitGroup
			all.Go(func() {
				_ = s.loop().do(context.Background(), func() {
					close(held)
					<-free
				})
			})
			<-held
			for k := range each {
				x := s.tenants.find(fmt.Sprintf("x%d-%d", round, k))
				all.Go(func() { call("DELETE", "/v1/adapters/"+x.name, "") })
				for taken(&x.gate, 0) {
					runtime.Gosched()
				}
			}
			for k := range each {
				all.Go(func() { create(round+1, k) })
			}
			for range 200 {
				runtime.Gosched()
			}
			close(free)
			all.Wait()
		}
	}()
	over := time.AfterFunc(4*time.Minute, func() { panic("the server stands still") }) // nor would it end
	<-ended
	over.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	require.NoError(t, s.loop().do(ctx, func() {}))
	_, v := ask(t, "GET", url+"/v1/adapters", "", "")
	require.Len(t, v["data"], each)
}

// TestBegins: while an adapter is made its slot has what was there before, and nobody draws with that; other calls do
// not wait, and making one has a deadline.
func TestBegins(t *testing.T) {
	s, url := teaching(t, TrainOptions{Adapters: 1})
	held, free := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(free) })
	defer goOn()
	go func() {
		_ = s.loop().do(context.Background(), func() {
			close(held)
			<-free
		})
	}()
	<-held
	ctx, cancel := context.WithCancel(context.Background())
	made := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/adapters", strings.NewReader(`{"name": "a"}`)))
		made <- w.Code
	}()
	require.Eventually(t, func() bool { return s.tenants.find("a") != nil }, 2*time.Minute, time.Millisecond)
	x := s.tenants.find("a")
	for _, g := range []*gate{&x.gate, &x.turn} {
		require.True(t, taken(g, math.MaxInt64))
	}
	cancel()
	require.Equal(t, 504, <-made)
	require.Nil(t, s.tenants.find("a"))
	s.o.Deadline = 10 * time.Millisecond
	code, v := ask(t, "POST", url+"/v1/adapters", "", `{"name": "a"}`)
	require.Equal(t, 504, code, v)
	require.Nil(t, s.tenants.find("a"))
	s.o.Deadline = time.Minute
	goOn()
	code, v = ask(t, "POST", url+"/v1/adapters", "", `{"name": "b"}`)
	require.Equal(t, 201, code, v)
	_, v = ask(t, "GET", url+"/v1/models/b", "", "")
	require.Equal(t, []any{"b", "words"}, []any{v["id"], v["parent"]})
	_, v = ask(t, "GET", url+"/v1/models/words", "", "")
	require.Equal(t, []any{"words", nil}, []any{v["id"], v["parent"]})
}

// TestKeys: saved adapters keep their key, also when their adapter is gone and in another server.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	_, url := teaching(t, TrainOptions{Dir: dir})
	want := func(code int, method, path, key, body string) {
		t.Helper()
		got, v := ask(t, method, url+"/v1/adapters"+path, key, body)
		require.Equal(t, code, got, v)
	}
	want(201, "POST", "", "", `{"name": "a", "key": "secret"}`)
	want(201, "POST", "", "", `{"name": "b"}`)
	want(201, "POST", "", "", `{"name": "c", "key": "other"}`)
	const from = `{"label": "x", "adapter": "a"}`
	others := func() {
		t.Helper()
		want(403, "POST", "/b/load", "", from)
		want(403, "POST", "/b/load", "wrong", from)
		want(403, "POST", "/c/load", "other", from)
		want(200, "POST", "/b/load", "secret", from)
	}
	want(200, "POST", "/a/save", "secret", `{"label": "x"}`)
	others()
	want(200, "DELETE", "/a", "secret", "")
	others()
	want(403, "POST", "", "", `{"name": "a"}`)
	want(403, "POST", "", "", `{"name": "a", "key": "guess"}`)
	_, url = teaching(t, TrainOptions{Dir: dir})
	want(201, "POST", "", "", `{"name": "b"}`)
	want(201, "POST", "", "", `{"name": "c", "key": "other"}`)
	others()
	want(403, "POST", "", "", `{"name": "a"}`)
	want(201, "POST", "", "", `{"name": "a", "key": "secret"}`)
	want(200, "POST", "/a/load", "secret", `{"label": "x"}`)
	want(200, "POST", "/c/save", "other", `{"label": "x.partial"}`)
	want(200, "POST", "/c/save", "other", `{"label": "x"}`)
	want(200, "POST", "/c/load", "other", `{"label": "x.partial"}`)
	b, err := os.ReadFile(filepath.Join(dir, ".a.key"))
	require.NoError(t, err)
	require.NotContains(t, string(b), "secret")
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".a.key"), []byte("zz"), 0o600))
	want(500, "POST", "/b/load", "secret", from)
}

// TestSpoilt: an adapter whose logits are no numbers is told so, and other clients' answers go on.
func TestSpoilt(t *testing.T) {
	s, url := teaching(t, TrainOptions{})
	code, v := ask(t, "POST", url+"/v1/adapters", "", `{"name": "a"}`)
	require.Equal(t, 201, code, v)
	code, v = ask(t, "POST", url+"/v1/adapters/a/forward_backward", "", lesson(0, 0))
	require.Equal(t, 200, code, v)
	code, v = ask(t, "POST", url+"/v1/adapters/a/optim_step", "", `{"lr": 1e38}`)
	require.Equal(t, 400, code, v)
	code, v = ask(t, "POST", url+"/v1/adapters/a/optim_step", "", `{"lr": 10, "weight_decay": 1e38}`)
	require.Equal(t, 400, code, v)
	require.NoError(t, s.loop().do(context.Background(), func() {
		require.NoError(t, s.tenants.slots.Trainer.Write(0, func(_ string, shape []int) ([]float32, error) {
			out := make([]float32, tensor.Len(shape))
			for i := range out {
				out[i] = 1e30
			}
			return out, nil
		}))
	}))
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			name, want := "words", 200
			if i%3 == 1 {
				name, want = "a", 500
			}
			code, v := ask(t, "POST", url+"/v1/completions", "", fmt.Sprintf(
				`{"model": %q, "prompt": [[3, 4, 5]], "max_tokens": 20, "seed": 1, "ignore_eos": true}`, name))
			if code != want || want == 500 && at(v, "error", "code") != "no_number" {
				t.Errorf("%s: %d %v", name, code, v)
			}
		})
	}
	all.Wait()
}
