package family

import (
	"fmt"

	"github.com/lfactor/lfactor/stages/block"
)

// X0 is the data of clean latents, which blocks before the denoiser give where they encode images.
const X0 = "dif.x0"

// Seen is what blocks that encode images before a denoiser take: pixels of so many channels, of one size
// in a microbatch.
type Seen struct {
	Channels int
	Sizes    [][3]int // that a run has: frames, height and width
}

// fits reports a sample i whose pixels are not as its size says, or of another size than the first.
func (s *Seen) fits(i int, x, first *Encoded) error {
	switch {
	case x.Size != first.Size:
		return fmt.Errorf("image %d is of %v pixels and image 1 of %v: an autoencoder among the model's blocks "+
			"takes one size in a microbatch", i+1, x.Size, first.Size)
	case len(x.Pixels) != s.Channels*x.Size[0]*x.Size[1]*x.Size[2]:
		return fmt.Errorf("image %d has %d numbers, want %d channels of %v pixels", i+1, len(x.Pixels), s.Channels,
			x.Size)
	}
	return nil
}

// Samples is the number of samples that the levels of a shape are of: tokens that are given without noise
// have one more of their own.
func (d *Denoiser) Samples(s block.Shape) int {
	return max(1, Levels(s)-latents{d}.levels(1)+1)
}
