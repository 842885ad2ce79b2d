package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// Sizes of the steps that are served here.
const (
	micros = 4 // microbatches of a step
	rows   = 2 // of a microbatch
	seqLen = 6
	steps  = 20
)

// counted is steps whose content follows from their number: token = 1000·step + place.
type counted struct {
	at    int64
	made  []int64 // steps, in the order in which they were made
	fails int64   // a step that fails
}

func (c *counted) Step(step int64) ([]dataset.Batch, error) {
	switch {
	case step >= steps:
		return nil, io.EOF
	case step == c.fails:
		return nil, errors.New("the disk is gone")
	case step != c.at:
		return nil, fmt.Errorf("step %d is asked for at %d", step, c.at)
	}
	c.made = append(c.made, step)
	c.at++
	out := make([]dataset.Batch, micros)
	for m := range out {
		b := dataset.Batch{Rows: rows, SeqLen: seqLen, CuSeqlens: []int32{0, 4, seqLen, 2 * seqLen},
			SampleIDs: []int64{10*step + int64(m), -1, 10*step + int64(m) + 5}}
		for i := range rows * seqLen {
			n := int32(1000*step) + int32(m*rows*seqLen+i)
			b.Tokens, b.Labels = append(b.Tokens, n), append(b.Labels, n+1)
			b.Positions = append(b.Positions, int32(i%seqLen))
		}
		out[m] = b
	}
	return out, nil
}

func (c *counted) Position() dataset.Position { return dataset.Position{Step: c.at} }

func (c *counted) Seek(p dataset.Position) error {
	if p.Step < 0 || p.Step > steps {
		return fmt.Errorf("the position %d is none of this data", p.Step)
	}
	c.at = p.Step
	return nil
}

func (c *counted) Stages() ([]dataset.Stage, time.Duration) { return nil, 0 }
func (c *counted) Close()                                   {}

// serve starts a server of counted steps.
func serve(t *testing.T) (*counted, string) {
	t.Helper()
	c := &counted{fails: -1}
	s := httptest.NewServer(NewServer(Source{Batches: c, SeqLen: seqLen, MicroBatch: rows,
		GlobalBatch: micros * rows}))
	t.Cleanup(s.Close)
	return c, s.URL
}

// get asks for a path, and returns the status and the body.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(b)
}

// row is a row of a batch as a client has it.
type row struct {
	tokens, labels, positions string
	starts, samples           string
}

// take asks for a share of a step, and returns its rows and the next token.
func take(t *testing.T, url, token string, rank, of int) (out []row, next string) {
	t.Helper()
	code, body := get(t, fmt.Sprintf("%s/batch?token=%s&rank=%d&of=%d", url, token, rank, of))
	require.Equal(t, http.StatusOK, code, body)
	r, err := ipc.NewReader(strings.NewReader(body))
	require.NoError(t, err)
	defer r.Release()
	next, _ = r.Schema().Metadata().GetValue("next_token")
	for r.Next() {
		rec := r.Record()
		list := func(c, i int) string { return rec.Column(c).(array.ListLike).ValueStr(i) }
		for i := range int(rec.NumRows()) {
			out = append(out, row{list(0, i), list(1, i), list(2, i), list(3, i), list(4, i)})
		}
	}
	return out, next
}

// A batch is what the step has, row by row: tokens, labels, positions, where segments begin in the row and
// which samples they are.
func TestRows(t *testing.T) {
	_, url := serve(t)
	all, _ := take(t, url, "", 0, 1)
	require.Len(t, all, micros*rows)
	require.Equal(t, row{"[12,13,14,15,16,17]", "[13,14,15,16,17,18]", "[0,1,2,3,4,5]", "[0,4]", "[1,-1]"},
		all[2])
	require.Equal(t, row{"[18,19,20,21,22,23]", "[19,20,21,22,23,24]", "[0,1,2,3,4,5]", "[0]", "[6]"},
		all[3])
}

// Shares of a step are disjoint and together the step, as ranks of training have them; the next token is the
// same for all of them.
func TestShares(t *testing.T) {
	c, url := serve(t)
	all, next := take(t, url, "", 0, 1)
	for _, of := range []int{2, 4} {
		parts := make([][]row, of)
		for rank := range of {
			var token string
			parts[rank], token = take(t, url, "", rank, of)
			require.Equal(t, next, token)
		}
		var again []row
		for m := range micros { // microbatch m is the next one of rank m mod of
			again = append(again, parts[m%of][m/of*rows:][:rows]...)
		}
		require.Equal(t, all, again, "%d ranks", of)
	}
	require.Equal(t, []int64{0}, c.made, "a step is made once for all that ask")
}

// A client goes on by its token: with another server, with a step that it has had, and with one that is no longer kept.
func TestTokens(t *testing.T) {
	c, url := serve(t)
	tokens, want := []string{""}, [][]row{}
	for range steps {
		all, next := take(t, url, tokens[len(tokens)-1], 0, 1)
		tokens, want = append(tokens, next), append(want, all)
	}
	require.Len(t, c.made, steps)
	_, other := serve(t)
	for _, k := range []int{7, 8, 3, steps - 1, 0} {
		for _, at := range []string{url, other} {
			have, next := take(t, at, tokens[k], 0, 1)
			require.Equal(t, want[k], have, "step %d", k)
			require.Equal(t, tokens[k+1], next)
		}
	}
	require.Equal(t, []int64{3, 0}, c.made[steps:], "the last steps are kept, and others made again")
	code, body := get(t, url+"/batch?token="+tokens[steps])
	require.Equal(t, http.StatusGone, code)
	require.Contains(t, body, "the data is used up")
	have, _ := take(t, url, tokens[2], 0, 1) // and goes on to serve
	require.Equal(t, want[2], have)
}

// What can never be answered is refused with its reason, and the server goes on.
func TestRefuses(t *testing.T) {
	c, url := serve(t)
	for path, want := range map[string]string{
		"/batch?of=3":        "of=3: a step has 4 microbatches, which so many ranks do not share evenly",
		"/batch?of=0":        "of=0: a step has 4 microbatches",
		"/batch?of=2&rank=2": "rank=2 is none of the ranks 0 to 1",
		"/batch?rank=-1":     "rank=-1 is none of the ranks 0 to 0",
		"/batch?rank=first":  `rank="first" is no number`,
		"/batch?token=%25":   "the token is damaged: take one that a batch came with, or none for the start",
		"/batch?token=eA":    "the token is damaged",
		"/batch?token=" + Token(dataset.Position{Step: -4}): "the position -4 is none of this data",
		"/batch?token=" + Token(dataset.Position{Step: 99}): "the position 99 is none of this data",
	} {
		code, body := get(t, url+path)
		require.Equal(t, http.StatusBadRequest, code, path)
		require.Contains(t, body, want, path)
	}
	code, _ := get(t, url+"/batches")
	require.Equal(t, http.StatusNotFound, code)
	r, err := http.Post(url+"/batch", "", nil)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusMethodNotAllowed, r.StatusCode)
	code, body := get(t, url+"/")
	require.Equal(t, http.StatusOK, code)
	var form map[string]int
	require.NoError(t, json.Unmarshal([]byte(body), &form))
	require.Equal(t, map[string]int{"seq_len": seqLen, "rows": micros * rows, "microbatch": rows}, form)

	c.fails = 0 // an error of the moment is none of the client's, and is not kept
	code, body = get(t, url+"/batch")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Contains(t, body, "the disk is gone")
	c.fails = -1
	all, _ := take(t, url, "", 0, 1)
	require.Len(t, all, micros*rows)
}

// Clients that ask at the same time, some of which go away in the middle of an answer, have the same steps,
// each of which is made once.
func TestManyClients(t *testing.T) {
	c, url := serve(t)
	const clients = 8
	had := make([][][]row, clients)
	var wg sync.WaitGroup
	for k := range clients {
		wg.Go(func() {
			token := ""
			for range 10 {
				if k%2 == 1 { // it asks, and goes away
					if r, err := http.Get(url + "/batch?token=" + token); err == nil {
						_ = r.Body.Close() // it did not wait for the content
					}
				}
				var all []row
				all, token = take(t, url, token, 0, 1)
				had[k] = append(had[k], all)
			}
		})
	}
	wg.Wait()
	for k := range clients {
		require.Equal(t, had[0], had[k], "client %d", k)
	}
	made := slices.Clone(c.made)
	slices.Sort(made)
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, made)
}

// FuzzToken: no token is a crash.
func FuzzToken(f *testing.F) {
	f.Add(Token(dataset.Position{Step: 3}))
	f.Add("e30")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseToken(s)
		if err == nil && s != "" {
			if again, err := parseToken(Token(p)); err != nil || Token(again) != Token(p) {
				t.Fatalf("%q: %v", s, err)
			}
		}
	})
}
