package latent

import (
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestFrozen: scaled latents of a picture and of a clip are those of diffusers' numbers, and come back, from
// several goroutines at once too.
func TestFrozen(t *testing.T) {
	for _, c := range []struct {
		name   string
		size   [3]int
		latent [4]int
	}{{"kl-flux", [3]int{1, 8, 12}, [4]int{3, 1, 2, 3}}, {"wan", [3]int{9, 8, 8}, [4]int{2, 3, 2, 2}}} {
		g := openGolden(t, c.name)
		f := g.open(ref.New()).Frozen()
		shape, err := f.Shape(c.size)
		require.NoError(t, err)
		require.Equal(t, c.latent, shape)
		pixels, wantMean, wantDeviation := g.read("pixels"), g.read("mean"), g.read("logvar")
		f.a.Scale.Normal(wantMean)
		places := tensor.Len(wantMean.Shape[2:])
		for i, v := range wantDeviation.F32() {
			wantDeviation.F32()[i] = float32(math.Exp(float64(v)/2)) * f.a.Scale.By[i/places]
		}
		z := g.read("latents")
		f.a.Scale.Normal(z)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				mean, deviation, err := f.Encode(pixels.F32(), c.size)
				if err != nil {
					t.Error(err)
					return
				}
				near(t, wantMean.F32(), mean, sumsBound, "mean")
				near(t, wantDeviation.F32(), deviation, sumsBound, "deviation")
				scaled := slices.Clone(z.F32())
				decoded, size, err := f.Decode(scaled, shape)
				if err != nil || size != c.size || !slices.Equal(scaled, z.F32()) {
					t.Error(err, size, "or latents that were changed")
					return
				}
				near(t, g.read("decoded").F32(), decoded, sumsBound, "decoded")
			})
		}
		all.Wait()
		in, out := f.Channels()
		require.Equal(t, []int{3, 3}, []int{in, out})
	}
}

// TestFrozenFits: sizes and numbers that do not fit are refused with what would.
func TestFrozenFits(t *testing.T) {
	kl, wan := openGolden(t, "kl").open(ref.New()).Frozen(), openGolden(t, "wan").open(ref.New()).Frozen()
	_, err := kl.Shape([3]int{2, 8, 8})
	require.EqualError(t, err, "latent: 2 frames; AutoencoderKL takes pictures, of one frame")
	_, err = wan.Shape([3]int{4, 8, 8})
	require.EqualError(t, err,
		"latent: pixels [1 3 4 8 8]: 4 frames are not 1 + a multiple of 4; take 1 or 5")
	_, _, err = kl.Encode(nil, [3]int{2, 8, 8})
	require.ErrorContains(t, err, "takes pictures")
	_, _, err = wan.Encode(nil, [3]int{4, 8, 8})
	require.ErrorContains(t, err, "take 1 or 5")
	_, _, err = wan.Encode(make([]float32, 3), [3]int{1, 8, 8})
	require.EqualError(t, err, "latent: 3 numbers for pixels [1 3 1 8 8], want 192")
	_, _, err = kl.Decode(nil, [4]int{2, 2, 8, 8})
	require.EqualError(t, err,
		"latent: latents [2 2 8 8] of 2 frames; AutoencoderKL takes pictures, of one frame")
	_, _, err = kl.Decode(nil, [4]int{3, 1, 8, 8})
	require.ErrorContains(t, err, "have 3 channels")
	_, _, err = kl.Decode(nil, [4]int{2, 1, 8, 8})
	require.EqualError(t, err, "latent: 0 numbers for latents [1 2 8 8], want 128")
}

// TestFingerprint: it follows from settings and weights, and not from chunks or from how files have them.
func TestFingerprint(t *testing.T) {
	open := func(dir string, chunk int) string {
		a, err := Open(dir, ref.New())
		require.NoError(t, err)
		defer a.Close()
		a.Chunk = chunk
		return a.Frozen().Fingerprint()
	}
	want := open("testdata/wan", 0)
	require.Equal(t, want, open(rewrite(t, "wan", 2000, func(*checkpoint.Info, *[]byte) {}), 0))
	require.Equal(t, want, open("testdata/wan", 1))
	require.NotEqual(t, want, open(rewrite(t, "wan", 0, func(i *checkpoint.Info, raw *[]byte) {
		if i.Name == "quant_conv.bias" {
			(*raw)[0]++
		}
	}), 0))
}
