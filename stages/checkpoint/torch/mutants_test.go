package torch

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

var long = flag.Bool("long", false, "all mutated files, not a part of them")

// content is all that a directory gives: names, types, shapes and bytes of weights and of what an optimizer keeps.
func content(dir, like string) (out []byte, err error) {
	var src checkpoint.Source
	var st *States
	if like == "" {
		src, st, err = OpenDeepSpeed(dir)
	} else if src, _, err = OpenMegatron(dir, like); err == nil {
		if st, err = OpenMegatronStates(dir, like); err != nil {
			err = errors.Join(err, src.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	all := []checkpoint.Source{src}
	defer st.Close()
	defer src.Close()
	if st != nil {
		for _, kind := range sortedKeys(st.Kinds) {
			all = append(all, st.Kinds[kind])
		}
		out = append(out, byte(st.Step), byte(st.Updates))
	}
	for _, s := range all {
		for _, t := range s.Tensors() {
			box := make([][2]int, len(t.Shape))
			for i, n := range t.Shape {
				box[i] = [2]int{0, n}
				out = append(out, byte(n))
			}
			out = append(out, t.Name...)
			raw := make([]byte, t.Bytes)
			if err := s.ReadRanges(t.Name, box, raw); err != nil {
				return nil, err
			}
			out = append(out, raw...)
		}
	}
	return out, nil
}

// TestMutants: of files of Megatron and DeepSpeed that are cut, or in which bytes are changed, left out,
// doubled or swapped, each is refused with a fault of the file, or gives what it did before; none makes it
// panic, or take much memory. 1,440 with -long, 204 else.
func TestMutants(t *testing.T) {
	each := 17
	if *long {
		each = 120
	}
	rng := rand.New(rand.NewPCG(11, 7))
	refused, same, tries := 0, 0, 0
	for _, c := range [][2]string{{"megatron-train-dense/model", "megatron-train-dense"},
		{"megatron-train-dense/buckets", "megatron-train-dense"},
		{"megatron-train-grid/buckets", "megatron-train-grid"}, {"megatron-train-types/listed",
			"megatron-train-types"},
		{"megatron-train-dense/distrib", "megatron-train-dense"}, {"megatron-train-experts/ranks",
			"megatron-train-experts"},
		{"megatron-latent", "megatron-latent-hf"}, {"megatron-dense-ranks", "megatron-dense-hf"},
		{"deepspeed-zero1/global_step2", ""}, {"deepspeed-zero2/global_step2", ""},
		{"deepspeed-zero3/global_step2", ""}, {"deepspeed-universal/global_step2_universal", ""}} {
		from, like := filepath.Join("testdata", c[0]), c[1]
		if like != "" {
			like = filepath.Join("testdata", like)
		}
		want, err := content(from, like)
		require.NoError(t, err, c)
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
		var files []string
		require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && filepath.Ext(path) != ".json" {
				files = append(files, path)
			}
			return err
		}))
		for range each {
			path := files[rng.IntN(len(files))]
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			x := mutated(rng, b)
			require.NoError(t, os.WriteFile(path, x, 0o600))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := content(dir, like)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20))
			if tries++; err != nil {
				refused++
			} else {
				require.True(t, bytes.Equal(want, got), "%s was changed, and is read as something else",
					path)
				same++
			}
			require.NoError(t, os.WriteFile(path, b, 0o600))
		}
	}
	require.Greater(t, refused, tries/3, "%d of %d gave the same", same, tries)
}

// mutated is a file with one change.
func mutated(rng *rand.Rand, b []byte) []byte {
	n, x := rng.IntN(len(b)), bytes.Clone(b)
	switch rng.IntN(6) {
	case 0:
		return x[:n]
	case 1:
		return append(x[:n], b[min(len(b), n+1+rng.IntN(9)):]...)
	case 2:
		k := min(len(b), n+1+rng.IntN(9))
		return append(append(x[:n:n], b[n:k]...), b[n:]...)
	case 3:
		k := rng.IntN(len(b))
		x[n], x[k] = x[k], x[n]
	case 4:
		x[n] ^= 1 << rng.IntN(8)
	default:
		x[n] = byte(rng.IntN(256))
	}
	return x
}
