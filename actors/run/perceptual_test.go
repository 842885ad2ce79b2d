package run

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// smallVGG writes a network of two convolutions under VGG's names, with weights by channel.
func smallVGG(t *testing.T, dir string) {
	t.Helper()
	shapes := map[string][]int{"features.0.weight": {4, 3, 3, 3}, "features.0.bias": {4},
		"features.3.weight": {8, 4, 3, 3},
		"features.3.bias":   {8}, "lin0.model.1.weight": {1, 4, 1, 1}, "lin1.model.1.weight": {1, 8, 1, 1}}
	var list []checkpoint.Info
	for name, shape := range shapes {
		list = append(list, checkpoint.Info{Name: name, DType: checkpoint.F32, Shape: shape})
	}
	w, err := checkpoint.NewWriter(dir, list, 1<<32)
	require.NoError(t, err)
	for name, shape := range shapes {
		v := make([]float32, tensor.Len(shape))
		for i := range v {
			v[i] = float32(math.Abs(math.Sin(float64(1+i*len(name)))) - 0.4*float64(len(shape)%2))
		}
		require.NoError(t, w.WriteTensor(name, tensor.Of(tensor.F32, v, shape...).Bytes()))
	}
	require.NoError(t, w.Commit())
}

// TestPerceptualRun: an autoencoder learns by what a frozen network sees beside the pixels: the loss is their sum,
// the same in one stage, in two and in two replicas, and after a restart; the network is not in the export.
func TestPerceptualRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	smallVGG(t, filepath.Join(dir, "vgg"))
	file, err := os.ReadFile("../../stages/family/autoencoders/testdata/kl/config.json")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "kl"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kl", "config.json"), file, 0o644))
	load := func(out string, more ...string) (*configs.Config, error) {
		text := fmt.Sprintf("model: {path: %q, init: random}\ndata: {paths: [%q], seq_len: 64}\ndiffusion: {sizes: [8x8]}\n"+
			"train: {steps: 8, global_batch: 4, micro_batch: 2}\noptimizer: {lr: 3.0e-3}\nschedule: {kind: constant}\n",
			filepath.Join(dir, "kl"), filepath.Join(dir, "a.tar"))
		return configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Files: true,
			Args: append([]string{
				"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + filepath.Join(out, "saved"),
				"checkpoint.save_hf=true"}, more...)})
	}
	train := func(out string, more ...string) (losses []float64) {
		cfg, err := load(out, more...)
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
			losses = append(losses, m.Loss)
		}}))
		return losses
	}
	seen := "diffusion.perceptual=" + filepath.Join(dir, "vgg")
	out := t.TempDir()
	one := train(out, seen)
	require.Less(t, one[7], 0.8*one[0])
	none, twice := train(t.TempDir()), train(t.TempDir(), seen, "diffusion.perceptual_weight=2")
	require.Greater(t, one[0], none[0]+0.01)
	require.InDelta(t, one[0]-none[0], twice[0]-one[0], 1e-5)
	require.Equal(t, one, train(t.TempDir(), seen, "plan.pp=2"))
	for i, loss := range train(t.TempDir(), seen, "plan.dp=2") {
		require.InDelta(t, one[i], loss, 1e-5)
	}
	again := t.TempDir()
	train(again, seen, "train.steps=3")
	require.Equal(t, one[3:], train(again, seen))
	src, err := checkpoint.OpenDir(filepath.Join(out, "saved", "release_hf_weights", "vae"))
	require.NoError(t, err)
	defer src.Close()
	for _, p := range src.Tensors() {
		require.NotContains(t, p.Name, "features")
	}

	for want, more := range map[string][]string{
		"sees nothing of less than 2 pixels": {seen, "diffusion.sizes=[1x8]"},
		"perceptual_weight: is not read":     {"diffusion.perceptual_weight=2"},
		"diffusion.perceptual: " + dir + "/kl: missing: no file of weights": {"diffusion.perceptual=" + dir +
			"/kl"},
	} {
		_, err := load(t.TempDir(), more...)
		require.ErrorContains(t, err, want)
	}
}
