package diffusion

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/texts"
)

// TestLookIsTransformers: an image's file has the features that transformers' processor and CLIP's vision
// encoder make of it, within 1e-5 of their length.
func TestLookIsTransformers(t *testing.T) {
	t.Parallel()
	const dir = "../../stages/texts/testdata/clip-vision"
	var want struct {
		Image  []byte
		States []float64
	}
	text, err := os.ReadFile(dir + "/want.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	l := &looker{open: func() (*texts.Sight, error) { return texts.OpenSight(dir, ref.New(), tensor.F32) }}
	l.processor, err = media.LoadFor(dir, 1, 1)
	require.NoError(t, err)
	p, err := media.Decode(want.Image, media.Options{White: true})
	require.NoError(t, err)
	got, err := l.features(p)
	require.NoError(t, err)
	require.Len(t, got, len(want.States))
	off, all := 0.0, 0.0
	for i, v := range want.States {
		off += math.Pow(float64(got[i])-v, 2)
		all += v * v
	}
	require.Less(t, math.Sqrt(off/all), 1e-5)
}

// TestLookIsInSamples: a run whose encoder of images is another one has other data, so that it does not go on.
func TestLookIsInSamples(t *testing.T) {
	cfg, err := configs.Load(configs.Request{Args: []string{"model.name=wan/2.1-t2v-1.3b", "data.paths=x"}})
	require.NoError(t, err)
	prints := map[string]bool{}
	for _, look := range []*looker{nil, {Print: "a"}, {Print: "b"}} {
		x := &Pictures{D: &family.Denoiser{}, Encoder: Pixels{}, Look: look}
		prints[x.Samples(cfg).Fingerprint()] = true
	}
	require.Len(t, prints, 3)
}
