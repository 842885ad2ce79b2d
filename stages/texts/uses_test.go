package texts

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// used is testdata/uses.json, which bench/golden/texts_uses.py makes with diffusers' pipelines.
type used struct {
	Texts    []string
	Rows     []int // of the states, the last one as -1
	Encoders map[string]struct {
		Class, Tokenizer string
		Config           map[string]any
	}
	Uses []struct {
		Pipeline, Component, Encoder string
		Length                       int
		States                       [][][]float32 // of each text; none where pooled rows alone are taken
		Pooled                       [][]float32
	}
}

func readUses(t *testing.T) (u used) {
	t.Helper()
	text, err := os.ReadFile("testdata/uses.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &u))
	return u
}

// tokenizerOf unpacks a folder of dataset/token/testdata/encoders.
func tokenizerOf(t *testing.T, name string) *Tokenizer {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob(filepath.Join("../../dataset/token/testdata/encoders", name, "*.gz"))
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		r, err := gzip.NewReader(bytes.NewReader(b))
		require.NoError(t, err)
		out, err := io.ReadAll(r)
		require.NoError(t, err)
		file := filepath.Join(dir, strings.TrimSuffix(filepath.Base(f), ".gz"))
		require.NoError(t, os.WriteFile(file, out, 0o600))
	}
	tok, err := OpenTokenizer(dir)
	require.NoError(t, err)
	return tok
}

// sines are the weights that bench/golden/texts_uses.py gives a parameter.
func sines(p *grad.Param, dst []float32) error {
	c := float64(crc32.ChecksumIEEE([]byte(p.Name)) % 1000)
	for i := range dst {
		v := 0.35 * math.Sin(0.37*float64(i)+c)
		if strings.Contains(p.Name, "norm") && strings.HasSuffix(p.Name, "weight") {
			v++
		}
		dst[i] = float32(v)
	}
	return nil
}

// opened is the encoder of a name.
func (u *used) opened(t *testing.T, name string) (*Encoder, *Tokenizer) {
	t.Helper()
	x := u.Encoders[name]
	keys, err := json.Marshal(x.Config)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, sized(t, x.Class, strings.Trim(string(keys), "{}")).Write(dir, tensor.F32, sines))
	e, err := Open(dir, ref.New(), tensor.F32)
	require.NoError(t, err)
	return e, tokenizerOf(t, x.Tokenizer)
}

// Every use gives the states and pooled rows of diffusers' pipeline, of short, empty and overlong captions,
// with its length, filling and cleaning.
func TestUsesAreDiffusers(t *testing.T) {
	u := readUses(t)
	seen := map[Use]bool{}
	for _, want := range u.Uses {
		what := want.Pipeline + "/" + want.Component
		use, err := UseOf(want.Pipeline, want.Component)
		require.NoError(t, err)
		seen[use] = true
		e, tok := u.opened(t, want.Encoder)
		states, pooled, err := e.Captions(use, tok, u.Texts...)
		require.NoError(t, err)
		for i := range u.Texts {
			if want.States != nil {
				require.Len(t, states[i], want.Length*e.Width, what)
				for k, r := range u.Rows {
					row := states[i][(r+want.Length)%want.Length*e.Width:][:e.Width]
					require.Less(t, apart(row, want.States[i][k]), 1e-5, "%s: text %d, row %d", what, i, r)
				}
			}
			require.Equal(t, want.Pooled == nil, pooled[i] == nil, what)
			if want.Pooled != nil {
				require.Less(t, near(pooled[i], want.Pooled[i]), 1e-5, "%s: pooled row of text %d", what, i)
			}
		}
		e.Close()
	}
	for _, use := range uses {
		switch use.Pipeline {
		case "WanImageToVideoPipeline": // encodes as WanPipeline does
		case "FastWAM": // encodes as WanPipeline does what it does not clean
			wan, err := UseOf("WanPipeline", use.Component)
			require.NoError(t, err)
			wan.Pipeline, wan.Clean = use.Pipeline, false
			require.Equal(t, wan, use)
		default:
			require.True(t, seen[use], "no golden case of %+v", use)
		}
	}
}

// apart is near where rows of zeros are wanted too.
func apart(got, want []float32) float64 {
	for i, w := range want {
		if w != 0 {
			return near(got, want)
		}
		if got[i] != 0 {
			return math.Inf(1)
		}
	}
	return 0
}

// A caption that is cut still ends with the special tokens; one that is as long as the length is not cut.
func TestIDs(t *testing.T) {
	tok := tokenizerOf(t, "clip")
	all, err := tok.IDs("one two three four", 77)
	require.NoError(t, err)
	same, err := tok.IDs("one two three four", len(all))
	require.NoError(t, err)
	require.Equal(t, all, same)
	cut, err := tok.IDs("one two three four", len(all)-1)
	require.NoError(t, err)
	require.Equal(t, append(append([]int32{}, all[:len(all)-2]...), all[len(all)-1]), cut)
	_, err = tok.IDs("one", 2)
	require.ErrorContains(t, err, "2 tokens are no room for a caption and 2 special tokens")
	_, err = UseOf("FluxPipeline", "text_encoder_3")
	require.ErrorContains(t, err, "how FluxPipeline uses its text_encoder_3 is not known; it is of Stable")
	tok.Pad = -1
	_, err = uses[0].Tokens(tok, "one")
	require.ErrorContains(t, err, "names no pad_token to fill captions with")
}

// Texts are cleaned as diffusers' prompt_clean does without ftfy.
func TestCleaned(t *testing.T) {
	for text, want := range map[string]string{"": "", " \t\n": "", "a\u00a0b\x1fc": "a b c",
		"&amp;amp;lt;": "&lt;", "&quot;x&#39;s&quot;": `"x's"`, "a&nbsp;&nbsp;b ": "a b"} {
		require.Equal(t, want, cleaned(text), fmt.Sprintf("%q", text))
	}
}
