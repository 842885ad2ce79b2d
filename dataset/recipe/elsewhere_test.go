package recipe

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/curate"
)

// elsewhere carries out a recipe, which is a function of its output, by hosts that find nothing of its work,
// and says how many batches of each part they have made.
func elsewhere(t *testing.T, dir string, recipe func(output string) string) (made map[int]int, r *Recipe) {
	t.Helper()
	there, err := load(t, dir, recipe(filepath.Join(dir, "nothing is here")))
	require.NoError(t, err)
	work, done, err := Work(there)
	require.NoError(t, err)
	defer done()
	r, err = load(t, dir, recipe(filepath.Join(dir, "there")))
	require.NoError(t, err)
	var mu sync.Mutex
	made = map[int]int{}
	do := func(ctx context.Context, part int, from, to int64, with []byte) ([]byte, error) {
		mu.Lock()
		made[part]++
		mu.Unlock()
		return work(ctx, part, from, to, with)
	}
	_, err = Run(t.Context(), r, nil, dataset.Remote{Do: do, Ahead: 3})
	require.NoError(t, err)
	return made, r
}

// Blocks of all stages that other hosts make, and keys that they sort, give what is made here, though nothing of the
// work lies there.
func TestElsewhere(t *testing.T) {
	dir := t.TempDir()
	a, b := corpus(t, dir, "a.jsonl", 2500, 1), corpus(t, dir, "b.jsonl", 300, 2)
	_, want := run(t, dir, "here", 2, a, b)
	made, r := elsewhere(t, dir, func(to string) string { return fmt.Sprintf(sixSteps, to, 2, a, b) })
	sameRun(t, "elsewhere", files(t, filepath.Join(dir, "there")), want)
	for at, s := range r.stages {
		require.NotZero(t, made[at], "blocks of stage %d", at)
		if s.step >= 0 {
			require.Greater(t, made[len(r.stages)+at], r.Steps[s.step].state().Form().Buckets,
				"several ranges of each bucket of stage %d", at)
		}
	}
}

// Keys of which most are the same are one range, which is too large to travel and is sorted here.
func TestElsewhereSame(t *testing.T) {
	dir := t.TempDir()
	text := strings.Repeat("{\"text\": \"the same again\"}\n",
		6000) + "{\"text\": \"another\"}\n{\"text\": \"another\"}\n"
	in := write(t, dir, "a.jsonl", text)
	recipe := func(to string) string {
		return fmt.Sprintf("output: %s\nmemory: 1MiB\ninputs: [%q]\nsteps: [exact_dedup]\n", to, in)
	}
	made, r := elsewhere(t, dir, recipe)
	here, err := load(t, dir, recipe(filepath.Join(dir, "here")))
	require.NoError(t, err)
	_, err = Run(t.Context(), here, nil, dataset.Remote{})
	require.NoError(t, err)
	sameRun(t, "one key", files(t, filepath.Join(dir, "there")), files(t, filepath.Join(dir, "here")))
	require.LessOrEqual(t, made[len(r.stages)], 1, "the range of the others alone")
}

// What is found in ranges of keys, one after the other, is what is found in all of them, also where keys that
// are near to each other are joined, and where keys are shorter than what ranges go by.
func TestRanges(t *testing.T) {
	near := func(a, b []byte) bool { return a[0]^b[0] < 4 }
	for name, form := range map[string]curate.Form{
		"first": {Bytes: 8}, "clusters": {Bytes: 12, Clusters: true}, "short": {Bytes: 4, Clusters: true},
		"near":              {Bytes: 9, Prefix: 8, Near: near, Clusters: true},
		"of a short prefix": {Bytes: 5, Prefix: 2, Near: near, Clusters: true},
	} {
		draw := rand.New(rand.NewPCG(4, 1))
		var records [][]byte
		for doc := range uint64(4000) {
			r := make([]byte, form.Bytes)
			for i := range r {
				r[i] = byte(draw.IntN(2) * draw.IntN(4))
			}
			r = binary.BigEndian.AppendUint64(r, doc)
			records = append(records, binary.BigEndian.AppendUint32(r, 0))
		}
		want := findIn(form, bytes.Join(records, nil))
		require.NoError(t, want.err)
		require.NotEmpty(t, want.Records, name)
		heads := []uint64{0}
		for _, r := range records[:20] {
			heads = append(heads, headOfKey(form, r))
		}
		slices.Sort(heads)
		heads = slices.Compact(heads)
		require.Greater(t, len(heads), 2, name)
		var have []byte
		for i, from := range heads {
			var part [][]byte
			for _, r := range records {
				if h := headOfKey(form, r); h >= from && (i+1 == len(heads) || h < heads[i+1]) {
					part = append(part, r)
				}
			}
			v := findIn(form, bytes.Join(part, nil))
			require.NoError(t, v.err)
			have = append(have, v.Records...)
		}
		require.Equal(t, want.Records, have, name)
	}
}
