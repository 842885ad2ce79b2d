package latent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// rewrite copies a golden's folder with tensors that f changes; a name of "" leaves one out.
func rewrite(t *testing.T, name string, shardBytes int64, f func(i *checkpoint.Info,
	raw *[]byte)) (dir string) {
	from := filepath.Join("testdata", name)
	src, err := checkpoint.OpenFile(filepath.Join(from, checkpoint.DiffusersStem+".safetensors"))
	require.NoError(t, err)
	defer src.Close()
	dir = t.TempDir()
	var infos []checkpoint.Info
	data := map[string][]byte{}
	for _, i := range src.Tensors() {
		raw := make([]byte, i.Bytes)
		require.NoError(t, src.ReadInto(i.Name, 0, i.Bytes, raw))
		if f(&i, &raw); i.Name != "" {
			infos = append(infos, i)
			data[i.Name] = raw
		}
	}
	w, err := checkpoint.NewWriterOf(checkpoint.DiffusersStem, dir, infos, shardBytes)
	require.NoError(t, err)
	for name, raw := range data {
		require.NoError(t, w.WriteTensor(name, raw))
	}
	require.NoError(t, w.Commit())
	text, err := os.ReadFile(filepath.Join(from, configName))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, configName), text, 0o644))
	return dir
}

// decoded are the bits of what the golden's latents decode to, with the weights of a folder.
func decoded(t *testing.T, name, dir string) []float32 {
	a, err := Open(dir, ref.New())
	require.NoError(t, err)
	defer a.Close()
	pixels, err := a.Decode(openGolden(t, name).read("latents"))
	require.NoError(t, err)
	return pixels.F32()
}

// TestOpen: shards, wider weights and the names of older files give the bits of the folder as it was.
func TestOpen(t *testing.T) {
	want := decoded(t, "kl", filepath.Join("testdata", "kl"))
	require.Equal(t, want, decoded(t, "kl", rewrite(t, "kl", 2000, func(*checkpoint.Info, *[]byte) {})))
	require.Equal(t, want, decoded(t, "kl", rewrite(t, "kl", 0, func(i *checkpoint.Info, raw *[]byte) {
		x := tensor.Make(tensor.F32, i.Shape...)
		tensor.Widen(tensor.BF16, *raw, x.F32())
		i.DType, *raw = checkpoint.F32, x.Bytes()
	})))
	renamed := 0
	require.Equal(t, want, decoded(t, "kl", rewrite(t, "kl", 0, func(i *checkpoint.Info, _ *[]byte) {
		was := i.Name
		i.Name = strings.NewReplacer("to_q", "query", "to_k", "key", "to_v", "value", "to_out.0",
			"proj_attn").Replace(was)
		if i.Name != was {
			renamed++
		}
	})))
	require.Equal(t, 16, renamed)
}

// TestWeights: weights that are missing, of another shape or dtype, or not the autoencoder's are all named.
func TestWeights(t *testing.T) {
	dir := rewrite(t, "wan", 0, func(i *checkpoint.Info, raw *[]byte) {
		switch i.Name {
		case "decoder.conv_in.bias":
			i.Name = ""
		case "encoder.conv_in.bias":
			i.Name = "encoder.conv_in.offset"
		case "quant_conv.bias":
			i.Shape = []int{2, 2}
		}
	})
	_, err := Open(dir, ref.New())
	require.ErrorContains(t, err, "tensor decoder.conv_in.bias: missing: the model needs it, with shape [4]")
	require.ErrorContains(t, err, "tensor encoder.conv_in.bias: missing")
	require.ErrorContains(t, err, "tensor encoder.conv_in.offset: extra: the model has no such parameter")
	require.ErrorContains(t, err, "tensor quant_conv.bias: misshapen: shape [2 2], the model needs [4]")
	dir = rewrite(t, "wan", 0, func(i *checkpoint.Info, raw *[]byte) {
		if i.Name == "quant_conv.bias" {
			i.DType = checkpoint.I16
		}
	})
	_, err = Open(dir, ref.New())
	require.ErrorContains(t, err, "tensor quant_conv.bias: misshapen: dtype I16, want F32, BF16 or F16")
	require.NoError(t, os.Remove(filepath.Join(dir, checkpoint.DiffusersStem+".safetensors")))
	_, err = Open(dir, ref.New())
	require.ErrorContains(t, err, dir)
	require.NoError(t, os.Remove(filepath.Join(dir, configName)))
	_, err = Open(dir, ref.New())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestSave: a folder that was written is read with the same bits, and diffusers' names.
func TestSave(t *testing.T) {
	for _, name := range goldens(t) {
		g, dir := openGolden(t, name), t.TempDir()
		require.NoError(t, g.open(ref.New()).Save(dir))
		require.Equal(t, decoded(t, name, g.dir), decoded(t, name, dir))
		a, err := checkpoint.OpenDir(g.dir)
		require.NoError(t, err)
		b, err := checkpoint.OpenDir(dir)
		require.NoError(t, err)
		var names [2][]string
		for i, src := range []checkpoint.Source{a, b} {
			for _, x := range src.Tensors() {
				names[i] = append(names[i], x.Name)
			}
			require.NoError(t, src.Close())
		}
		require.Equal(t, names[0], names[1])
	}
}
