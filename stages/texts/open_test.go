package texts

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/opaque"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

var long = flag.Bool("long", false, "run the long tier as well")

func cpuOf(t *testing.T, threads int) kernels.Backend {
	t.Helper()
	b := cpu.New(threads)
	t.Cleanup(func() { kernels.Close(b) })
	return b
}

// copied writes the weights of a golden case to a new folder, changed: a name may be given, changed or taken away ("").
func copied(t *testing.T, name string, rename func(string) []string, shard int64) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join("testdata", name, "config.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	src, err := checkpoint.OpenFile(filepath.Join("testdata", name, "model.safetensors"))
	require.NoError(t, err)
	defer func() { require.NoError(t, src.Close()) }()
	var infos []checkpoint.Info
	raw := map[string][]byte{}
	for _, i := range src.Tensors() {
		b := make([]byte, i.Bytes)
		require.NoError(t, src.ReadInto(i.Name, 0, i.Bytes, b))
		for _, to := range rename(i.Name) {
			if i.Name = to; strings.HasPrefix(to, "other:") { // another content under a name
				i.Name = to[len("other:"):]
				b = append([]byte{b[0] ^ 1}, b[1:]...)
			}
			infos, raw[i.Name] = append(infos, i), b
		}
	}
	w, err := checkpoint.NewWriter(dir, infos, shard)
	require.NoError(t, err)
	for _, i := range infos {
		box := make([][2]int, len(i.Shape))
		for k, n := range i.Shape {
			box[k] = [2]int{0, n}
		}
		require.NoError(t, w.WriteRanges(i.Name, box, raw[i.Name]))
	}
	require.NoError(t, w.Commit())
	return dir
}

func same(name string) []string { return []string{name} }

// Published files have other names for some weights, a second copy of the embedding, numbers of positions,
// or shards: all give the states of the first.
func TestOpenLayouts(t *testing.T) {
	for what, c := range map[string]struct {
		name   string
		rename func(string) []string
		shard  int64
	}{
		"shards":        {"umt5", same, 4096},
		"names of CLIP": {"clip", func(n string) []string { return []string{"text_model." + n} }, 0},
		"another embedding": {"t5", func(n string) []string {
			if n == "shared.weight" {
				return []string{"encoder.embed_tokens.weight"}
			}
			return same(n)
		}, 0},
		"a second embedding": {"t5", func(n string) []string {
			if n == "shared.weight" {
				return []string{n, "encoder.embed_tokens.weight"}
			}
			return same(n)
		}, 0},
		"positions": {"clip-old", func(n string) []string {
			if strings.HasSuffix(n, "position_embedding.weight") {
				return []string{n, "text_model.embeddings.position_ids"}
			}
			return same(n)
		}, 0},
	} {
		e, err := Open(copied(t, c.name, c.rename, c.shard), ref.New(), tensor.F32)
		require.NoError(t, err, what)
		g := openGolden(t, c.name)
		states, _, err := e.Encode(g.captions())
		require.NoError(t, err)
		require.Less(t, near(slices.Concat(states...), g.floats("last")), 1e-5, what)
		e.Close()
	}
}

// A weight that is missing or that nothing reads is an error that names it, and so are two of one
// parameter that differ.
func TestOpenRefuses(t *testing.T) {
	for want, rename := range map[string]func(string) []string{
		"tensor shared.weight: missing": func(n string) []string {
			if n == "shared.weight" {
				return nil
			}
			return same(n)
		},
		"tensor decoder.final_layer_norm.weight: extra": func(n string) []string {
			if n == "encoder.final_layer_norm.weight" {
				return []string{n, "decoder.final_layer_norm.weight"}
			}
			return same(n)
		},
		"tensor shared.weight: misshapen: shape [26 14], the model needs [44 14]": func(n string) []string {
			switch n {
			case "encoder.block.0.layer.1.DenseReluDense.wi.weight":
				return []string{n, "shared.weight"}
			case "shared.weight":
				return nil
			}
			return same(n)
		},
		"it is another name of": func(n string) []string {
			if n == "shared.weight" {
				return []string{n, "other:encoder.embed_tokens.weight"}
			}
			return same(n)
		}} {
		_, err := Open(copied(t, "t5", rename, 0), ref.New(), tensor.F32)
		require.ErrorContains(t, err, want)
	}
	_, err := Open("testdata/t5", ref.New(), tensor.F16)
	require.ErrorContains(t, err, "too large for f16")
	_, err = Open(t.TempDir(), ref.New(), tensor.F32)
	require.ErrorContains(t, err, "config.json: no such file")
	dir := copied(t, "t5", same, 0)
	require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	_, err = Open(dir, ref.New(), tensor.F32)
	require.ErrorContains(t, err, "neither model.safetensors nor model.safetensors.index.json is here")
}

// A tensor of more rows than are read at once is read whole, in another type too, and all of a second
// embedding is compared with the first.
func TestOpenLarge(t *testing.T) {
	m := sized(t, "T5EncoderModel", `"vocab_size": 9000, "d_model": 3, "d_kv": 1,
		"d_ff": 4, "num_layers": 1`)
	dir := t.TempDir()
	require.NoError(t, m.Write(dir, tensor.F32, sines))
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
		e, err := Open(dir, ref.New(), d)
		require.NoError(t, err)
		for _, p := range m.Params() {
			want, raw := make([]float32, tensor.Len(p.Shape)), make([]byte, tensor.Len(p.Shape)*d.Size())
			require.NoError(t, sines(p, want))
			tensor.Narrow(d, want, raw)
			require.Equal(t, raw, e.run.Params[p.Name].Bytes(), p.Name)
		}
		e.Close()
	}
	src, err := checkpoint.OpenDir(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, src.Close()) }()
	at := slices.IndexFunc(src.Tensors(), func(i checkpoint.Info) bool { return i.Name == sharedName })
	info := src.Tensors()[at]
	require.NoError(t, (&weights{src: src}).equal(dir, info, info))
	require.ErrorContains(t, (&weights{src: lastByte{src}}).equal(dir, info, checkpoint.Info{Name: "other",
		DType: info.DType, Shape: info.Shape, Bytes: info.Bytes}), "other: extra: it is another name of")
}

// lastByte is a source with a second embedding whose last byte differs.
type lastByte struct{ checkpoint.Source }

func (s lastByte) ReadRanges(name string, box [][2]int, dst []byte) error {
	err := s.Source.ReadRanges(sharedName, box, dst)
	if name == "other" && box[0][1] == 9000 {
		dst[len(dst)-1] ^= 1
	}
	return err
}

// A device whose memory the host cannot read gives the bits of the reference, and gets all its memory back.
func TestDevice(t *testing.T) {
	d := opaque.New(5)
	defer kernels.Close(d)
	for _, name := range []string{"clip-projected", "t5-gated"} {
		g := openGolden(t, name)
		host, err := Open(g.dir, ref.New(), tensor.F32)
		require.NoError(t, err)
		far, err := Open(g.dir, d, tensor.F32)
		require.NoError(t, err)
		want, rows, err := host.Encode(g.captions())
		require.NoError(t, err)
		got, pooled, err := far.Encode(g.captions())
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, rows, pooled)
		host.Close()
		far.Close()
		d.Sync() // memory is given back behind the calls that use it
		require.Zero(t, far.run.Pool.Buffers())
	}
}

// What is saved opens again as the same encoder, in the type that it has.
func TestSave(t *testing.T) {
	for _, name := range cases(t) {
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
			e, err := Open("testdata/"+name, ref.New(), d)
			require.NoError(t, err)
			dir := t.TempDir()
			require.NoError(t, e.Save(dir))
			again, err := Open(dir, ref.New(), d)
			require.NoError(t, err)
			require.Equal(t, e.Config("float32"), again.Config("float32"))
			g := openGolden(t, name)
			want, _, err := e.Encode(g.captions())
			require.NoError(t, err)
			got, _, err := again.Encode(g.captions())
			require.NoError(t, err)
			require.Equal(t, want, got)
			e.Close()
			again.Close()
			wider, err := Open(dir, ref.New(), tensor.F32)
			require.NoError(t, err)
			got, _, err = wider.Encode(g.captions())
			require.NoError(t, err)
			require.Less(t, near(slices.Concat(got...), g.floats("last")), 0.1, "of weights in %v", d)
			wider.Close()
		}
	}
}

// TestSavedLoads: transformers loads what is saved with nothing missing or left over, and computes the
// golden states. It wants Python with transformers, named by LFACTOR_PYTHON or python3.
func TestSavedLoads(t *testing.T) {
	if !*long {
		t.Skip("saved encoders are loaded by transformers with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import torch, transformers").Run(); err != nil {
		t.Skipf("%s cannot import torch and transformers (%v): nothing is loaded", python, err)
	}
	args := []string{"bench/golden/texts_load.py"}
	for _, name := range cases(t) {
		e, err := Open("testdata/"+name, ref.New(), tensor.F32)
		require.NoError(t, err)
		dir, golden := t.TempDir(), filepath.Join("stages/texts/testdata", name)
		require.NoError(t, e.Save(dir))
		e.Close()
		args = append(args, golden, dir)
	}
	run := exec.Command(python, args...)
	run.Dir = "../.."
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(string(out))
}
