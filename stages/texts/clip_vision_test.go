package texts

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// CLIP's vision encoder gives transformers' hidden_states[-2] of an image; a folder that is none is an error.
func TestSightIsTransformers(t *testing.T) {
	const dir = "testdata/clip-vision"
	var want struct {
		Pixels, States []float32
	}
	text, err := os.ReadFile(dir + "/want.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	for on, b := range backends(t) {
		x, err := OpenSight(dir, b, tensor.F32)
		require.NoError(t, err)
		require.Equal(t, 10, x.Rows())
		states, err := x.Encode(want.Pixels)
		require.NoError(t, err)
		require.Less(t, near(states, want.States), 1e-5, on)
		_, err = x.Encode(want.Pixels[1:])
		require.ErrorContains(t, err, "want an image of 12×12 pixels")
		x.Close()
	}
	_, err = OpenSight("testdata/clip", ref.New(), tensor.F32)
	require.ErrorContains(t, err, `model_type: "clip_text_model", want clip_vision_model`)
}

// A folder with both of CLIP's encoders describes an image by the embedding of transformers.
func TestWholeIsTransformers(t *testing.T) {
	const dir = "testdata/clip-whole"
	var want struct{ Pixels, Whole []float32 }
	text, err := os.ReadFile(dir + "/want.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	for on, b := range backends(t) {
		x, err := OpenWhole(dir, b)
		require.NoError(t, err)
		require.Equal(t, 6, x.Width())
		got, err := x.Encode(want.Pixels)
		require.NoError(t, err)
		require.Less(t, near(got, want.Whole), 1e-5, on)
		x.Close()
	}
}
