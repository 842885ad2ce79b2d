package family

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/noise"
)

// TestClipStream: a clip's level and noise follow from its sample's key and are not those of the actions; its first frame
// is clean, at time 0 and not learnt; each part of it sees what it may, and actions the first frame and themselves.
func TestClipStream(t *testing.T) {
	p := Process{Times: noise.Times{Kind: "uniform"}, Levels: noise.Flow{Shift: 1, Times: 1000}}
	p.Target, _ = noise.Lookup("flow_prediction")
	d := &Denoiser{Patch: [3]int{1, 1, 1}, Channels: 2, Process: p, FeatureWidth: 1, Texts: 1,
		Feature: func(t float64) []float32 { return []float32{float32(t)} },
		Policy: Policy{Chunk: 4,
			Sight: &Sight{Views: 1, Size: [2]int{1, 2}, Patches: 2, Pixels: 3, State: 1, Token: true},
			Clip: &ClipStream{Latents: &Denoiser{Patch: [3]int{1, 1, 1}, Channels: 1, Process: p}, Weight: 3,
				Size: [3]int{3, 1, 2}, Every: 1, Scale: [3]int{1, 1, 1}, Sees: FirstSeen}}}
	clip := func() *Clip { return &Clip{Grid: d.Clip.Grid(), X0: make([]float32, 6)} }
	items := []Encoded{{Key: 5, Grid: [3]int{4, 1, 1}, X0: make([]float32, 8), Text: make([]float32, 2),
		State: []float32{1}, Clip: clip()}, {From: 4, Key: 6, Grid: [3]int{4, 1, 1}, X0: make([]float32, 8),
		Text: make([]float32, 1), State: []float32{2}, Clip: clip()}}
	items[1].Clip.Pad = 1
	require.NoError(t, d.Check(items, 8))
	m := &Model{Modalities: []Modality{d.Modality(), d.Clip.Modality(d)}}
	in := &Inputs{Rows: 8, Cu: []int32{0, 4, 8}, More: EncodedKey.With(More{}, items)}
	got := m.Tensors(in, m.Class(in, false))
	floats := func(name string, n int) []float32 { return got[name].F32()[:n] }
	ints := func(name string) []int32 { return got[name].I32() }

	require.NotEqual(t, floats("dif.noise", 6), floats("clip.noise", 6))
	require.NotEqual(t, floats("clip.noise", 6), got["clip.noise"].F32()[6:12])
	times := floats("clip.feature", 2)
	require.NotContains(t, times, got["dif.time"].F32()[0])
	require.NotEqual(t, times[0], times[1])
	none := int32(len(got["clip.feature"].F32()) - 1)
	require.Zero(t, got["clip.feature"].F32()[none])
	require.Equal(t, []int32{none, none, 0, 0, 0, 0, none, none, 1, 1, 1, 1}, ints("clip.at")[:12])
	s := times[0] / 1000
	require.InDeltaSlice(t, []float32{1, 1, 1 - s}, floats("clip.in.x0", 3), 1e-6)
	require.InDeltaSlice(t, []float32{0, 0, s}, floats("clip.in.noise", 3), 1e-6)
	// four rows of actions have the sample's weight, and four or two rows of one number share it, three times
	require.Equal(t, []float32{0, 0, 3, 3, 3, 3, 0, 0, 6, 6, 0, 0}, floats("clip.weight", 12))
	require.Equal(t, []int32{0, 2, 6, 8, 12}, ints("clip.segment.cu"))
	require.Equal(t, []int32{0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10, 11}, ints("clip.see")[:16])
	require.Equal(t, []int32{0, 2, 8, 10, 16}, ints("clip.see.cu"))
	n := int32(len(ints("clip.at")))
	require.Equal(t, []int32{0, 1, n, n + 1, n + 2, n + 3, 6, 7, n + 4, n + 5, n + 6, n + 7},
		ints("clip.joint")[:12])
	require.Equal(t, []int32{0, 6, 12}, ints("clip.joint.cu"))
	// two words and a state, and one word and a state
	require.Equal(t, []int32{0, 3, 5}, ints("dif.told.seq"))
	for _, bad := range []func(c *Clip){func(c *Clip) { c.X0 = c.X0[1:] }, func(c *Clip) { c.Grid[0] = 2 },
		func(c *Clip) { c.Pad = 3 }} {
		c := clip()
		bad(c)
		items[0].Clip = c
		require.ErrorContains(t, d.Check(items, 8), "sample 1 has no clip of whole frames")
	}
	items[0].Clip = nil
	require.ErrorContains(t, d.Check(items, 8), "sample 1 has no clip")
}

// TestClipStreamRoom: a list of rows that are seen which its room does not hold is a fault of this program,
// with its numbers.
func TestClipStreamRoom(t *testing.T) {
	f := &ClipStream{Latents: &Denoiser{Patch: [3]int{1, 1, 1}, Channels: 1}, Sees: func(n int) []Segment {
		return []Segment{{0, 1, 0, n}, {1, 2, 0, n}, {2, n, 0, n}}
	}}
	in := &Inputs{Rows: 1, Cu: []int32{0, 1}, More: EncodedKey.With(More{}, []Encoded{{Clip: &Clip{
		Grid: [3]int{4, 1, 1}}}})}
	require.PanicsWithValue(t, "family: clip.see of 4 rows lists 12, and has room for 8", func() {
		clipStream{&Denoiser{Policy: Policy{Clip: f}}}.sees(in, block.Shape{Rows: 1, Dims: map[string]int{ClipRowsDim: 4}},
			map[string]*tensor.Tensor{})
	})
}
