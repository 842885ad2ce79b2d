package serve

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/trained"
)

// TestReplace: while 32 clients ask, weights are replaced again and again. Nobody is refused, each answer is that of one
// set of weights from its first token to its last, and one that is asked behind a replacement is of the newer ones.
func TestReplace(t *testing.T) {
	open := func(name string) *trained.Trained {
		m, err := trained.Open("../run/testdata/preference/"+name, "../run/testdata/preference/policy")
		require.NoError(t, err)
		t.Cleanup(m.Close)
		return m
	}
	models := []*trained.Trained{open("policy"), open("reference")}
	ask := func(url string, i int) string {
		code, v := post(t, url+"/v1/completions", fmt.Sprintf(`{"model": "words", "prompt": "w%d w6", "max_tokens": 24, "temperature": 0,
			"ignore_eos": true}`, i))
		require.Equal(t, http.StatusOK, code, v)
		return at(v, "choices", 0, "text").(string)
	}
	var want [2][32]string
	for k, m := range models {
		_, url := serving(t, m, Options{})
		for i := range want[k] {
			want[k][i] = ask(url, i)
		}
	}
	require.NotEqual(t, want[0], want[1])
	s, url := serving(t, models[0], Options{})
	stop, clients := make(chan struct{}), sync.WaitGroup{}
	var mu sync.Mutex
	var wrong []string
	for i := range 32 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if said := ask(url, i); said != want[0][i] && said != want[1][i] {
					mu.Lock()
					wrong = append(wrong, said)
					mu.Unlock()
				}
			}
		})
	}
	for n := range 8 {
		require.NoError(t, s.Replace(models[(n+1)%2]))
		i := n % 32
		require.Equal(t, want[(n+1)%2][i], ask(url, i))
	}
	close(stop)
	clients.Wait()
	require.Empty(t, wrong)
	require.Equal(t, int64(8), s.replaced.Load())

	trains, _ := served(t, Options{Train: &TrainOptions{Adapters: 1, Rank: 2, Alpha: 2, Targets: []string{"q_proj"}}})
	require.ErrorContains(t, trains.Replace(models[1]), "adapters are trained")
}

// TestClientKeys: clients with keys of their own are let in, and no others; a file that others may read is refused.
func TestClientKeys(t *testing.T) {
	at := filepath.Join(t.TempDir(), "keys")
	write := func(text string, mode os.FileMode) error {
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		require.NoError(t, os.Chmod(at, mode))
		_, err := ReadKeys(at)
		return err
	}
	require.ErrorContains(t, write("a 0123456789abcdef\n", 0o644), "chmod 600")
	for text, why := range map[string]string{"": "no keys", "a short\n": ":1: a line is NAME KEY", "a/b 0123456789abcdef\n": ":1:",
		"a 0123456789abcdef\nb 0123456789abcdef\n": ":2: the name, or the key", "a 0123456789abcdef x\n": ":1:"} {
		require.ErrorContains(t, write(text, 0o600), why)
	}
	require.NoError(t, write("# clients\na 0123456789abcdef\n\nb fedcba9876543210\n", 0o600))
	keys, err := ReadKeys(at)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"0123456789abcdef": "a", "fedcba9876543210": "b"}, keys)
	_, url := served(t, Options{Keys: keys})
	for header, code := range map[string]int{"Authorization: Bearer 0123456789abcdef": 200, "X-Api-Key: fedcba9876543210": 200,
		"Authorization: Bearer a": 401, "Authorization: Bearer ": 401, "X-Other: 1": 401, "Authorization: Bearer keys": 401} {
		r, err := http.NewRequest("GET", url+"/v1/models", nil)
		require.NoError(t, err)
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		a, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, a.Body.Close())
		require.Equal(t, code, a.StatusCode, header)
	}
}
