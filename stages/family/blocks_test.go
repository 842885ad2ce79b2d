package family

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/noise"
)

// inBlocks is a policy over blocks of two frames of a token each and of two actions, and a sample of three blocks.
func inBlocks(window int) (*Denoiser, []Encoded) {
	p := Process{Times: noise.Times{Kind: "uniform"}, Levels: noise.Flow{Shift: 1, Times: 1000}}
	p.Target, _ = noise.Lookup("flow_prediction")
	d := &Denoiser{Patch: [3]int{1, 1, 1}, Channels: 2, Process: p, Texts: 1,
		Policy: Policy{Chunk: 6, Parts: 3, Broad: true,
			Sight: &Sight{Views: 1, Size: [2]int{1, 1}, Patches: 1, Pixels: 3, State: 1},
			Clip: &ClipStream{Latents: &Denoiser{Patch: [3]int{1, 1, 1}, Channels: 1, Given: 2, Masks: 1,
				Process: p}, Weight: 1, Size: [3]int{7, 1, 1}, Every: 1, Scale: [3]int{1, 1, 1},
				Blocks: &Blocks{Frames: 2, Window: window}}}}
	return d, []Encoded{{Key: 5, Grid: d.ChunkGrid(), X0: make([]float32, 12), Text: make([]float32, 2),
		State: []float32{1}, Clip: &Clip{Grid: d.Clip.Grid(), X0: make([]float32, 7), States: []float32{2, 3},
			Given: make([]float32, 14)}}}
}

// TestBlocks: a noisy block and its actions see each other, their state and frames before them as they were, and none
// of what comes; a block as it was sees itself and those before it, or with a window the first frame and the last ones;
// a state sees itself. Rows are 0 to 6 of noisy frames, 7 to 13 of frames as they were, and then states and actions.
func TestBlocks(t *testing.T) {
	for window, clean := range map[int][][]int32{
		0: {{7}, {7, 8, 9}, {7, 8, 9, 10, 11}, {7, 8, 9, 10, 11, 12, 13}},
		3: {{7}, {7, 8, 9}, {7, 9, 10, 11}, {7, 11, 12, 13}}} {
		d, items := inBlocks(window)
		got, class := seenInBlocks(t, d, items, "clip.see")
		m := &Model{Modalities: []Modality{d.Modality(), d.Clip.Modality(d)}}
		s := int32(ClipRows(m.Shape(6, class)))
		a := s + int32(d.StateRows(m.Shape(6, class)))
		noisy := [][]int32{{7, 1, 2, s, a, a + 1}, {7, 8, 9, 3, 4, s + 1, a + 2, a + 3},
			{7, 8, 9, 10, 11, 5, 6, s + 2, a + 4, a + 5}}
		require.Equal(t, append(append([][]int32{{0}}, noisy...), clean...), got)
		got, _ = seenInBlocks(t, d, items, "clip.joint")
		require.Equal(t, noisy, got)
		got, _ = seenInBlocks(t, d, items, "clip.state.see")
		require.Equal(t, [][]int32{{s}, {s + 1}, {s + 2}}, got)
	}
}

// TestBlocksAct: a block that is drawn behind frames that are known, its actions and its state all see
// these and each other, at the places that they have in the clip.
func TestBlocksAct(t *testing.T) {
	d, items := inBlocks(0)
	d.At = func(grid [3]int) (out []int32) {
		for k := range grid[0] * grid[1] {
			out = append(out, int32(k), 0, 0)
		}
		return out
	}
	c := items[0].Clip
	c.Part, c.Known, c.Grid[0], c.X0, c.Given, c.States = NoisyPart, 3, 5, c.X0[:5], c.Given[:10], nil
	items[0].Grid[0], items[0].X0, items[0].Level = 1, items[0].X0[:4], &noise.Level{Alpha: 1, Time: 500}
	got, class := seenInBlocks(t, d, items, "clip.see")
	m := &Model{Modalities: []Modality{d.Modality(), d.Clip.Modality(d)}}
	s := int32(ClipRows(m.Shape(2, class)))
	a := s + int32(d.StateRows(m.Shape(2, class)))
	all := []int32{0, 1, 2, 3, 4, s, a, a + 1}
	require.Equal(t, [][]int32{{0}, {0, 1, 2}, all}, got)
	for _, stream := range []string{"clip.joint", "clip.state.see"} {
		got, _ = seenInBlocks(t, d, items, stream)
		require.Equal(t, [][]int32{all}, got)
	}
	data := blocksData(d, items, class)
	require.Equal(t, []int32{2, 0, 0, 3, 0, 0}, data["dif.pos"].I32())
	require.Equal(t, []int32{1, 1, 1}, data["clip.state.pos"].I32()[:3])
}

// TestBlocksLevels: a block has one level of noise, which its actions have too, and the first frame its
// own; what is as it was has none. States lie one behind the other.
func TestBlocksLevels(t *testing.T) {
	d, items := inBlocks(0)
	m := &Model{Modalities: []Modality{d.Modality(), d.Clip.Modality(d)}}
	in := &Inputs{Rows: 6, Cu: []int32{0, 6}, More: EncodedKey.With(More{}, items)}
	data := blocksData(d, items, m.Class(in, false))
	at, acts := data["clip.time"].F32(), data["dif.time"].F32()
	require.Equal(t, []float32{at[2], at[4], at[6]}, []float32{at[1], at[3], at[5]})
	require.Equal(t, []float32{at[1], at[3], at[5]}, acts[:3])
	require.NotEqual(t, at[0], at[1])
	require.NotEqual(t, at[1], at[3])
	require.Equal(t, make([]float32, 7), at[7:14])
	require.Equal(t, []float32{1, 2, 3}, data["clip.state"].F32()[:3])
	require.Equal(t, []int32{0, 1, 2}, data["clip.state.at"].I32()[:3])
	weights := data["clip.weight"].F32()
	require.NotZero(t, weights[0]) // the first frame is learnt too
	require.Zero(t, weights[7])
	items[0].Clip.States = nil
	require.ErrorContains(t, d.Check(items, 6), "sample 1 has a state of 1 numbers")
}

func blocksData(d *Denoiser, items []Encoded, class int32) map[string]*tensor.Tensor {
	m := &Model{Modalities: []Modality{d.Modality(), d.Clip.Modality(d)}}
	n := int32(items[0].Tokens())
	return m.Tensors(&Inputs{Rows: int(n), Cu: []int32{0, n}, More: EncodedKey.With(More{}, items)}, class)
}

// seenInBlocks are what the parts of a stream see.
func seenInBlocks(t *testing.T, d *Denoiser, items []Encoded, stream string) (out [][]int32, class int32) {
	t.Helper()
	n := items[0].Tokens()
	require.NoError(t, d.Check(items, n))
	m := &Model{Modalities: []Modality{d.Modality(), d.Clip.Modality(d)}}
	class = m.Class(&Inputs{Rows: n, Cu: []int32{0, int32(n)}, More: EncodedKey.With(More{}, items)},
		false)
	got := blocksData(d, items, class)
	rows, cu := got[stream].I32(), got[stream+".cu"].I32()
	for i := range len(cu) - 1 {
		out = append(out, rows[cu[i]:cu[i+1]])
	}
	return out, class
}
