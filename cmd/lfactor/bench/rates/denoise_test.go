package rates

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDenoiserStep: models of diffusion are timed as they are trained, on latents and captions; a clip of an
// autoencoder is encoded as often as is said.
func TestDenoiserStep(t *testing.T) {
	const models = "../../../../stages/family/denoisers/testdata/"
	for _, name := range []string{"wan", "unet-xl", "flux"} {
		s := &Step{Model: models + name, Precision: "fp32", Recompute: "none", Threads: 1, Steps: 2, Seq: 16, Batch: 2, Pp: 1}
		res, _, err := s.Measure()
		require.NoError(t, err, name)
		require.Len(t, res.Losses, 3)
		require.Less(t, res.Losses[2], res.Losses[0], name) // the same batch again
		require.Positive(t, res.TokensPerSecond)
	}
	e := Encode{Model: "../../../../stages/family/autoencoders/testdata/wan", Size: "5x8x8", Threads: 1, Times: 2}
	res, err := e.Measure()
	require.NoError(t, err)
	require.Len(t, res.Seconds, 2)
	require.Positive(t, res.State)
	for want, bad := range map[string]Encode{
		"no multiple of": {Model: e.Model, Size: "5x9x8", Threads: 1, Times: 1},
		"--size x":       {Model: e.Model, Size: "x", Threads: 1, Times: 1},
		"--threads":      {Model: e.Model, Size: "5x8x8", Times: 1},
	} {
		_, err := bad.Measure()
		require.ErrorContains(t, err, want)
	}
	h, w := squarest(24)
	require.Equal(t, [2]int{4, 6}, [2]int{h, w})
}
