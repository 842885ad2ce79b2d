package diffusion

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/lfactor/lfactor/dataset/media"
)

// picker takes the frames of a clip at a rate.
type picker struct {
	fps    float64 // 0 for every frame
	frames int     // 0 for all
}

func every(fps float64, frames int) picker { return picker{fps, frames} }

// Pick implements media.VideoProcessor: frame i is the one nearest to i/fps seconds.
func (p picker) Pick(v media.VideoInfo) ([]int, error) {
	if v.Frames < 1 {
		return nil, fmt.Errorf("it has no frames")
	}
	step := 1.0
	if p.fps > 0 && v.FPS > 0 {
		step = v.FPS / p.fps
	}
	var at []int
	for i := 0; p.frames == 0 || i < p.frames; i++ {
		k := int(math.Round(float64(i) * step))
		if k >= v.Frames {
			break
		}
		at = append(at, k)
	}
	return at, nil
}

// Video and VideoExtent implement media.VideoProcessor: frames are taken as they are, from the clip.
func (p picker) Video(*media.Clip) (*media.Features, error) {
	panic("trained: frames of a clip for a denoiser have no features")
}

// VideoExtent is never asked for.
func (p picker) VideoExtent(int, int, int) (media.Extent, error) {
	panic("trained: frames of a clip for a denoiser have no extent")
}

// Digest identifies content.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Pixels is the autoencoder that does nothing: a model learns pixels themselves.
type Pixels struct{}

// Shape implements Autoencoder.
func (Pixels) Shape(size [3]int) ([4]int, error) { return [4]int{3, size[0], size[1], size[2]}, nil }

// Encode implements Autoencoder.
func (Pixels) Encode(pixels []float32, _ [3]int) (mean, deviation []float32, err error) {
	return pixels, nil, nil
}

// Decode implements Autoencoder.
func (Pixels) Decode(latents []float32, shape [4]int) ([]float32, [3]int, error) {
	return latents, [3]int{shape[1], shape[2], shape[3]}, nil
}

// Fingerprint implements Autoencoder.
func (Pixels) Fingerprint() string { return "pixels" }
