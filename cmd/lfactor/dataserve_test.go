package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/stretchr/testify/require"
)

// dataServer starts lfactor data serve in a folder and returns its address.
func dataServer(t *testing.T, dir string, args ...string) (url string, kill func()) {
	t.Helper()
	c := exec.Command(built(t), append([]string{"data", "serve", "run.yaml", "--listen", "127.0.0.1:0"},
		args...)...)
	c.Dir = dir
	errs, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	in := bufio.NewReader(errs)
	for {
		line, err := in.ReadString('\n')
		require.NoError(t, err, line)
		if _, at, ok := strings.Cut(line, " on http://"); ok {
			kill = func() {
				_ = c.Process.Kill() // it serves until then
				_ = c.Wait()         // it was killed
			}
			t.Cleanup(kill)
			return "http://" + strings.TrimSpace(at), kill
		}
	}
}

// share asks for a share of a step: its rows of tokens and labels as text, and the token of the next step.
func share(t *testing.T, url, token string, rank, of int) (rows []string, next string) {
	t.Helper()
	r, err := http.Get(fmt.Sprintf("%s/batch?token=%s&rank=%d&of=%d", url, token, rank, of))
	require.NoError(t, err)
	defer r.Body.Close()
	require.Equal(t, 200, r.StatusCode)
	in, err := ipc.NewReader(r.Body)
	require.NoError(t, err)
	defer in.Release()
	for in.Next() {
		rec := in.Record()
		for i := range int(rec.NumRows()) {
			text := ""
			for c := range 3 {
				text += fmt.Sprintln(rec.Column(c).(*array.FixedSizeList).ValueStr(i))
			}
			for c := 3; c < 5; c++ {
				text += fmt.Sprintln(rec.Column(c).(*array.List).ValueStr(i))
			}
			rows = append(rows, text)
		}
		meta := in.Schema().Metadata()
		next, _ = meta.GetValue("next_token")
	}
	require.Equal(t, r.Header.Get("X-Next-Token"), next)
	return rows, next
}

// Batches are the same whoever asks, alone or as one of several ranks, from the start or from a token on, of
// the server that gave it or of another one of the same run file.
func TestDataServe(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	url, kill := dataServer(t, dir)
	var want [][]string
	tokens := []string{""}
	for len(want) < 8 {
		rows, next := share(t, url, tokens[len(want)], 0, 1)
		require.Len(t, rows, 8)
		want, tokens = append(want, rows), append(tokens, next)
	}
	kill()
	url, _ = dataServer(t, dir)
	for i := 5; i < 8; i++ { // a client that goes on
		rows, _ := share(t, url, tokens[i], 0, 1)
		require.Equal(t, want[i], rows)
	}
	for i, of := range []int{1, 2, 4, 2, 1} { // replicas join and leave
		var all []string
		var parts [][]string
		for rank := range of {
			rows, next := share(t, url, tokens[i], rank, of)
			require.Equal(t, tokens[i+1], next)
			parts = append(parts, rows)
		}
		for k := range 4 { // microbatches of two rows are dealt out
			all = append(all, parts[k%of][k/of*2:k/of*2+2]...)
		}
		require.Equal(t, want[i], all, "step %d of %d ranks", i, of)
	}
	require.False(t, slices.Equal(want[0], want[1]))
	for query, say := range map[string]string{
		"/batch?rank=0&of=3": "400 of=3: a step has 4 microbatches",
		"/batch?rank=2&of=2": "400 rank=2 is none of the ranks 0 to 1",
		"/batch?token=xx":    "400 the token is damaged", "/x": "404 there is / and /batch",
		"/batch?token=eyJvcmRlciI6IngifQ": "400 the position belongs to the data order x",
		"/":                               `200 {"microbatch":2,"rows":8,"seq_len":32}`,
	} {
		r, err := http.Get(url + query)
		require.NoError(t, err)
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Contains(t, fmt.Sprint(r.StatusCode, " ", string(text)), say)
	}
}
