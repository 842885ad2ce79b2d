//go:build cuda

package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cuda"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
)

// TestEncodeFramesOnDevice: on an emulated device clips that are encoded a frame of latents at a time, cached or
// live, give the losses of whole ones to the bit, which are the processor's within sums in another order.
func TestEncodeFramesOnDevice(t *testing.T) {
	dir := t.TempDir()
	clipsOf(t, filepath.Join(dir, "a.tar"))
	text := strings.NewReplacer("in_channels: 3", "in_channels: 4", "out_channels: 3",
		"out_channels: 4").Replace(wanOf12)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(text), 0o644))
	model := fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml"))
	losses := func(args ...string) []float64 {
		got, _ := givenRun(t, model, dir, append(args, "data.seq_len=3", "train.micro_batch=2",
			"diffusion.autoencoder="+filepath.Join(autoencodersOf, "wan"))...)
		return got
	}
	processor := losses()
	e := emulate.New(t)
	t.Setenv(cuda.LibraryVariable, e.Path)
	t.Setenv(cuda.ProductsVariable, e.Path)
	t.Setenv(cuda.AttentionVariable, e.Path)
	whole := losses("device=cuda")
	require.InEpsilonSlice(t, processor, whole, 1e-5)
	require.Positive(t, e.Launches())
	for _, args := range []string{"diffusion.encode_frames=1", "diffusion.latents=live",
		"diffusion.latents=live diffusion.encode_frames=1"} {
		require.Equal(t, whole, losses(append(strings.Fields(args), "device=cuda")...), args)
	}
}
