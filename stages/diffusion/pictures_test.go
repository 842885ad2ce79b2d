package diffusion

import (
	"bytes"
	"image"
	"image/png"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/family"
)

// madeUp is an autoencoder whose latents are what a test says.
type madeUp struct {
	print string
	shape [4]int
	mean  []float32
	asked *int
}

func (m madeUp) Shape([3]int) ([4]int, error) { return m.shape, nil }
func (m madeUp) Encode([]float32, [3]int) (mean, deviation []float32, err error) {
	*m.asked++
	return m.mean, nil, nil
}
func (m madeUp) Decode([]float32, [4]int) ([]float32, [3]int, error) { panic("trained: not asked for") }
func (m madeUp) Fingerprint() string                                 { return m.print }

// TestBadLatents: latents of other channels, of another number or that are none set an image aside with the
// reason; those that another autoencoder made are not found, and those of the same one are not made again.
func TestBadLatents(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewRGBA(image.Rect(0, 0, 8, 8))))
	medium := &dataset.Media{Kind: dataset.Image, Bytes: b.Bytes()}
	nan := make([]float32, 8)
	nan[5] = float32(math.NaN())
	asked, cache := 0, t.TempDir()
	prepare := func(e madeUp) error {
		e.asked = &asked
		x := &Pictures{D: &family.Denoiser{Channels: 2, Patch: [3]int{1, 1, 1}}, Encoder: e, Sizes: [][3]int{{1, 8, 8}},
			Upscale: true, Cache: cache}
		_, _, err := x.Prepare(medium, 0)
		return err
	}
	shape := [4]int{2, 1, 2, 2}
	require.ErrorContains(t, prepare(madeUp{"nan", shape, nan, nil}), "number 5 of its latents is NaN")
	require.ErrorContains(t, prepare(madeUp{"wide", [4]int{3, 1, 2, 2}, make([]float32, 12), nil}),
		"12 numbers in 3 channels, and the model reads 12 in 2")
	require.ErrorContains(t, prepare(madeUp{"short", shape, make([]float32, 7), nil}), "gives 7 numbers")
	require.NoError(t, prepare(madeUp{"good", shape, make([]float32, 8), nil}))
	require.Equal(t, 4, asked)
	require.NoError(t, prepare(madeUp{"good", shape, make([]float32, 8), nil}))
	require.Equal(t, 4, asked)
	require.NoError(t, prepare(madeUp{"other", shape, make([]float32, 8), nil}))
	require.Equal(t, 5, asked)
	require.ErrorContains(t, prepare(madeUp{"nan", shape, make([]float32, 8), nil}), "is NaN", "what was kept is held too")
}
