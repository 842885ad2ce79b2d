package gguf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// hexBytes are bytes that are written in JSON as hexadecimal digits.
type hexBytes []byte

func (h *hexBytes) UnmarshalText(b []byte) (err error) {
	*h, err = hex.DecodeString(string(b))
	return err
}

// blocks is blocks.json, which bench/golden/gguf_blocks.py writes with llama.cpp's package.
type blocks struct {
	Decode map[string]struct{ Raw, Values hexBytes }
	Rows   hexBytes
	Encode map[string]hexBytes
}

func golden(t testing.TB, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, into))
}

func numbers(b []byte) (out []float32) {
	for ; len(b) > 0; b = b[4:] {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return out
}

// TestBlocks: every type that is read gives the numbers that llama.cpp's package gives, to the bit.
func TestBlocks(t *testing.T) {
	var g blocks
	golden(t, "blocks.json", &g)
	for typ, l := range layouts {
		if typ == F32 {
			continue
		}
		x, ok := g.Decode[l.name]
		require.True(t, ok, "no golden data of %s", l.name)
		want := numbers(x.Values)
		got := make([]float32, len(want))
		typ.decode(got, x.Raw)
		for i := range want {
			require.Equal(t, math.Float32bits(want[i]), math.Float32bits(got[i]),
				"%s: number %d is %g, want %g", l.name, i,
				got[i], want[i])
		}
	}
	for name, w := range writtenTypes {
		if layouts[w.t].elements < blockK {
			require.Equal(t, []byte(g.Encode[layouts[w.t].name]), w.t.encode(nil, numbers(g.Rows)), name)
		}
	}
}

// TestKBlocks: blocks of 256 are those of llama.cpp's reference, and so are its errors.
func TestKBlocks(t *testing.T) {
	var g map[string]hexBytes
	golden(t, "kquants.json", &g)
	x := numbers(g["rows"])
	for typ, l := range layouts {
		if l.elements != blockK {
			continue
		}
		theirs, ours := []byte(g[l.name]), typ.encode(nil, x)
		require.Len(t, ours, len(theirs), l.name)
		a, b := make([]float32, len(x)), make([]float32, len(x))
		typ.decode(a, theirs)
		typ.decode(b, ours)
		for i := range x { // a part of zeros has any codes
			require.True(t, a[i] == b[i], "%s: number %d, %g, is %g, llama.cpp's is %g", l.name, i, x[i],
				b[i], a[i])
		}
	}
	zero := make([]float32, blockK)
	for typ, l := range layouts {
		y := make([]float32, blockK)
		typ.decode(y, typ.encode(nil, zero))
		for _, v := range y {
			require.Zero(t, v, l.name)
		}
	}
}

// TestNames: the tensors of every family have llama.cpp's names, and these ours.
func TestNames(t *testing.T) {
	var g map[string]map[string]string
	golden(t, "names.json", &g)
	for i := range families {
		f := &families[i]
		of := f.arch
		if f.moe != nil {
			of = f.modelType
		}
		require.NotEmpty(t, g[of])
		for ours, theirs := range g[of] {
			if exps, x := f.expertOf(ours); exps != "" {
				require.Equal(t, 1, x)
				require.Equal(t, theirs, exps)
				require.Equal(t, ours, f.expert(theirs, 1))
				continue
			}
			if theirs == "" { // always the embedding
				require.True(t, f.tied, ours)
				continue
			}
			require.Equal(t, theirs, f.theirs(ours), f.arch)
			require.Equal(t, ours, f.ours(theirs), f.arch)
		}
		for _, odd := range []string{"model.layers.01.mlp.up_proj.weight",
			"model.layers.-1.mlp.up_proj.weight",
			"model.layers.1.mlp.up_proj", "model.layers.1.mlp.up_proj.scale", "layers.1.mlp.up_proj.weight",
			""} {
			require.Empty(t, f.theirs(odd), odd)
		}
		for _, odd := range []string{"blk.01.ffn_up.weight", "blk.1.ffn_up", "blk.1.other.weight",
			"blk..ffn_up.weight", ""} {
			require.Empty(t, f.ours(odd), odd)
		}
	}
}

// TestReadsTheirs: a file that llama.cpp's package has written.
func TestReadsTheirs(t *testing.T) {
	f, err := OpenFile("testdata/small.gguf")
	require.NoError(t, err)
	defer f.Close()
	for key, want := range map[string]any{"a.u8": int64(200), "a.i8": int64(-100), "a.u16": int64(60000),
		"a.i16": int64(-30000), "a.u32": int64(4000000000), "a.i32": int64(-2000000000),
		"a.u64": int64(1) << 40,
		"a.i64": int64(-1) << 40, "a.f32": 0.5, "a.f64": 0.1, "a.bool": true, "a.text": "é ✓",
		"a.texts": []string{"x", "", "yz"}, "a.numbers": []int64{1, -2, 3},
		"a.reals": []float64{0.5, -1.5}} {
		require.Equal(t, want, f.Meta[key], key)
	}
	require.Len(t, f.Tensors, 3)
	for i, want := range []Tensor{{Name: "plain", Type: F32, Shape: []int{3, 4}, Bytes: 48},
		{Name: "half", Type: F16, Shape: []int{2, 4}, Bytes: 16},
		{Name: "blocks", Type: Q8_0, Shape: []int{2, 64}, Bytes: 136}} {
		got := f.Tensors[i]
		raw := make([]byte, got.Bytes)
		_, err := f.f.ReadAt(raw, got.Offset)
		require.NoError(t, err)
		y := make([]float32, want.Shape[0]*want.Shape[1])
		got.Type.decode(y, raw)
		if i < 2 {
			for k, v := range y {
				require.EqualValues(t, k, v)
			}
		}
		got.Offset = 0
		require.Equal(t, want, got)
	}
}

// small is the file of TestReadsTheirs.
func small(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/small.gguf")
	require.NoError(t, err)
	return b
}

// TestDamaged: of files that are cut short, or have bytes changed, none panics or takes more memory than the file has,
// and every fault is a *checkpoint.Error with the place. What is read all the same has tensors inside the file.
func TestDamaged(t *testing.T) {
	whole := small(t)
	check := func(b []byte) error {
		g, err := parse(bytes.NewReader(b), "x.gguf", int64(len(b)))
		var fault *checkpoint.Error
		if err != nil {
			require.True(t, errors.As(err, &fault), "%v", err)
			require.Equal(t, "x.gguf", fault.File)
			return err
		}
		for _, x := range g.Tensors {
			require.LessOrEqual(t, x.Offset+x.Bytes, int64(len(b)))
		}
		return nil
	}
	require.NoError(t, check(whole))
	for n := range len(whole) - 30 { // the last tensor has padding
		require.Error(t, check(whole[:n]), "cut to %d", n)
	}
	rng, found := rand.New(rand.NewPCG(1, 1)), 0
	for range 2000 {
		b := bytes.Clone(whole)
		for range 1 + rng.IntN(3) {
			b[rng.IntN(700)] = byte([]int{0, 255, rng.IntN(256)}[rng.IntN(3)])
		}
		if check(b) != nil {
			found++
		}
	}
	require.Greater(t, found, 800)
}

// TestFaults: what is wrong is named.
func TestFaults(t *testing.T) {
	build := func(meta []pair, tensors ...Tensor) []byte {
		b := head(meta, tensors)
		for _, x := range tensors {
			b = append(b, make([]byte, x.Bytes)...)
		}
		return append(b, make([]byte, 64)...)
	}
	one := Tensor{Name: "x", Type: F32, Shape: []int{2, 2}, Bytes: 16}
	for want, b := range map[string][]byte{
		"does not begin with GGUF":  []byte("GGML0000000000000000000000000000"),
		`key "a" is there twice`:    build([]pair{{"a", uint32(1)}, {"a", uint32(2)}}),
		`tensor "x" is there twice`: build(nil, one, one),
		"general.alignment is 12":   build([]pair{{"general.alignment", uint32(12)}}, one),
		"rows of 2 in blocks of 32": build(nil, Tensor{Name: "x", Type: Q8_0, Shape: []int{2, 2},
			Bytes: 16}),
		"its type is IQ2_XS": build(nil, Tensor{Name: "x", Type: 17, Shape: []int{2, 256},
			Bytes: 16}),
		"5 axes": build(nil, Tensor{Name: "x", Type: F32,
			Shape: []int{1, 1, 1, 1, 1}, Bytes: 4}),
		"more than": build(nil, Tensor{Name: "x", Type: F32,
			Shape: []int{1 << 30, 1 << 30}, Bytes: 4}),
		"tensor y: truncated": build(nil, one,
			Tensor{Name: "y", Type: F32, Shape: []int{2, 2000}, Bytes: 16}),
		"overlaps tensor": overlap(build(nil, one,
			Tensor{Name: "y", Type: F32, Shape: []int{2, 2}, Bytes: 16})),
		"version 9": append(append([]byte("GGUF"), 9, 0, 0, 0), make([]byte, 16)...),
		"entries are to follow in the": append([]byte("GGUF\x03\x00\x00\x00"),
			bytes.Repeat([]byte{9}, 16)...),
		"a text of 1229782938247303441 " +
			"byt": append([]byte("GGUF\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"), bytes.Repeat([]byte{17}, 8)...),
	} {
		_, err := parse(bytes.NewReader(b), "x.gguf", int64(len(b)))
		require.ErrorContains(t, err, want)
	}
}

// overlap moves the second tensor of two onto the first.
func overlap(b []byte) []byte {
	at := bytes.LastIndex(b, binary.LittleEndian.AppendUint64(nil, 32))
	copy(b[at:], make([]byte, 8))
	return b
}

// FuzzParse: no bytes make the reader panic, and what it takes for a file lies within it.
func FuzzParse(f *testing.F) {
	f.Add(small(f))
	f.Add(head([]pair{{"a", []string{"x"}}, {"b", true}}, []Tensor{{Name: "x", Type: Q4_K,
		Shape: []int{1, 256}, Bytes: 144}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := parse(bytes.NewReader(b), "x", int64(len(b)))
		if err != nil {
			return
		}
		for _, x := range g.Tensors {
			if x.Offset < 0 || x.Offset+x.Bytes > int64(len(b)) {
				t.Fatalf("%+v in %d bytes", x, len(b))
			}
		}
	})
}
