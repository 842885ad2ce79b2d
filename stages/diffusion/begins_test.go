package diffusion

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// noiseFile writes a safetensors file with one tensor of float32s.
func noiseFile(t *testing.T, name, dtype, shape string, v []float32) string {
	head := fmt.Sprintf(`{%q:{"dtype":%q,"shape":%s,"data_offsets":[0,%d]}}`, name, dtype, shape, 4*len(v))
	b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	path := filepath.Join(t.TempDir(), "noise.safetensors")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

// TestReadNoise: noise is read in diffusers' shapes, with and without frames, and what is none is refused with
// the file and what is wrong with it.
func TestReadNoise(t *testing.T) {
	t.Parallel()
	v := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	n, err := ReadNoise(noiseFile(t, "latents", "F32", "[2,1,2,2]", v), 2)
	require.NoError(t, err)
	require.Equal(t, [4]int{1, 1, 2, 2}, n.Shape)
	require.Equal(t, v[4:], n.of(1, 4))
	require.NoError(t, n.fits([4]int{1, 1, 2, 2}))
	require.ErrorContains(t, n.fits([4]int{4, 1, 2, 2}),
		"has noise of [1 1 2 2], and a picture of this size is [4 1 2 2]")
	require.NoError(t, Noise{}.fits([4]int{4, 1, 2, 2}))
	n, err = ReadNoise(noiseFile(t, "latents", "F32", "[1,1,2,2,2]", v), 1)
	require.NoError(t, err)
	require.Equal(t, [4]int{1, 2, 2, 2}, n.Shape)
	for why, file := range map[string]string{
		"no tensor latents":       noiseFile(t, "noise", "F32", "[1,1,2,4]", v),
		"latents is [2 4] of F32": noiseFile(t, "latents", "F32", "[2,4]", v),
		"of I32; want float32":    noiseFile(t, "latents", "I32", "[1,1,2,4]", v),
		"want float32 of [1, ":    noiseFile(t, "latents", "F32", "[2,1,2,2]", v),
		"number 1 of latents is": noiseFile(t, "latents", "F32", "[1,1,1,2]", []float32{0,
			float32(math.NaN())}),
		"no such file": filepath.Join(t.TempDir(), "none"),
	} {
		_, err := ReadNoise(file, 1)
		require.ErrorContains(t, err, why)
		var coded exit.Error
		require.ErrorAs(t, err, &coded, why)
		require.Equal(t, exit.Usage, coded.Code, why)
	}
}

// TestEvenLevels: pipelines of Flux.1 and Qwen-Image give schedulers of flow equal levels, whether the shift follows
// the size or not, so that the last one is 1/steps; those of Wan leave them to the scheduler.
func TestEvenLevels(t *testing.T) {
	t.Parallel()
	s := &noise.FlowMatchEuler{}
	require.Equal(t, []float64{1, 0.75, 0.5, 0.25}, options(&family.Denoiser{Even: true}, s, 4, 16).Sigmas)
	require.Nil(t, options(&family.Denoiser{}, s, 4, 16).Sigmas)
	s.Dynamic = true
	require.Len(t, options(&family.Denoiser{Even: true}, s, 4, 16).Sigmas, 4)
}
