package family

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/noise"
)

// rolls is a policy over chunks of one frame of two tokens and of one action, and a sample of three frames.
func rolls(window int) (*Denoiser, []Encoded) {
	p := Process{Times: noise.Times{Kind: "uniform"}, Levels: noise.Flow{Shift: 1, Times: 1000}}
	p.Target, _ = noise.Lookup("flow_prediction")
	d := &Denoiser{Patch: [3]int{1, 1, 1}, Channels: 2, Process: p, Texts: 1,
		Policy: Policy{Chunk: 3, Parts: 3, Quiet: true,
			Sight: &Sight{Views: 1, Size: [2]int{1, 2}, Patches: 2, Pixels: 3}, Real: 1,
			Clip: &ClipStream{Latents: &Denoiser{Patch: [3]int{1, 1, 1}, Channels: 1, Process: p}, Weight: 1,
				Size: [3]int{3, 1, 2}, Every: 1, Scale: [3]int{1, 1, 1},
				Rolls: &Rollout{Chunk: [2]int{1, 1}, Window: [2]int{window, window}}}}}
	return d, []Encoded{{Key: 5, Grid: d.ChunkGrid(), X0: make([]float32, 6), Text: make([]float32, 2),
		Clip: &Clip{Grid: d.Clip.Grid(), X0: make([]float32, 6)}}}
}

// rowsSeen are what the parts of a stream see.
func rowsSeen(t *testing.T, d *Denoiser, items []Encoded, stream string) (out [][]int32, class int32) {
	t.Helper()
	require.NoError(t, d.Check(items, 3))
	m := &Model{Modalities: []Modality{d.Modality(), d.Clip.Modality(d)}}
	in := &Inputs{Rows: 3, Cu: []int32{0, 3}, More: EncodedKey.With(More{}, items)}
	class = m.Class(in, false)
	got := m.Tensors(in, class)
	rows, cu := got[stream].I32(), got[stream+".cu"].I32()
	for i := range len(cu) - 1 {
		out = append(out, rows[cu[i]:cu[i+1]])
	}
	return out, class
}

// TestRollout: a chunk that is noisy sees itself and frames and actions before it as they were, one as it was itself
// and those before, actions the frames that they lead from, and none of what comes; a window ends what is seen.
// Rows are 0 to 5 of noisy frames, 6 to 11 of frames as they were, and then of past actions and of actions.
func TestRollout(t *testing.T) {
	d, items := rolls(64)
	got, class := rowsSeen(t, d, items, "clip.see")
	m := &Model{Modalities: []Modality{d.Modality(), d.Clip.Modality(d)}}
	past := int32(ClipRows(m.Shape(3, class)))
	require.Equal(t, [][]int32{{0, 1}, {2, 3, 6, 7, past}, {4, 5, 6, 7, past, 8, 9, past + 1}, {6, 7},
		{8, 9, 6, 7, past}, {10, 11, 6, 7, past, 8, 9, past + 1}}, got)
	got, _ = rowsSeen(t, d, items, "past.see")
	require.Equal(t, [][]int32{{past, 6, 7}, {past + 1, 6, 7, past, 8, 9},
		{past + 2, 6, 7, past, 8, 9, past + 1, 10, 11}}, got)
	own := past + 3
	got, _ = rowsSeen(t, d, items, "clip.joint")
	require.Equal(t, [][]int32{{own, 6, 7}, {own + 1, 6, 7, past, 8, 9},
		{own + 2, 6, 7, past, 8, 9, past + 1, 10, 11}}, got)

	d, items = rolls(2)
	got, _ = rowsSeen(t, d, items, "clip.joint")
	require.Equal(t, [][]int32{{own, 6, 7}, {own + 1, past, 8, 9}, {own + 2, past + 1, 10, 11}}, got)
}

// TestRolloutActs: a policy that acts draws a clip whose rows are there once, and sees it once it is drawn;
// what it is given has no noise, and neither have numbers that do not count.
func TestRolloutActs(t *testing.T) {
	d, items := rolls(64)
	c := items[0].Clip
	c.Part, c.Known, c.Chunk, c.Window = NoisyPart, 1, 3, 64
	got, _ := rowsSeen(t, d, items, "clip.see")
	require.Equal(t, [][]int32{{0, 1, 2, 3, 4, 5}}, got)
	c.Part = CleanPart
	items[0].Clean, items[0].Level = 1, &noise.Level{Alpha: 1, Time: 500}
	got, class := rowsSeen(t, d, items, "clip.joint")
	m := &Model{Modalities: []Modality{d.Modality(), d.Clip.Modality(d)}}
	own := int32(ClipRows(m.Shape(3, class)))
	require.Equal(t, [][]int32{{own, own + 1, own + 2, 0, 1, 2, 3, 4, 5}}, got)
	in := &Inputs{Rows: 3, Cu: []int32{0, 3}, More: EncodedKey.With(More{}, items)}
	data := m.Tensors(in, class)
	require.Equal(t, []float32{500, 500, 500, 0}, data["dif.time"].F32()[:4])
	require.EqualValues(t, len(data["dif.time"].F32())-1, data["dif.at"].I32()[0])
	require.Equal(t, []int32{1, 2}, data["dif.at"].I32()[1:3])
	eps := data["dif.noise"].F32()
	require.NotZero(t, eps[0])
	require.Zero(t, eps[1])
	require.NotContains(t, data, "past.x0")
}

// TestRolloutLevels: every frame and every part of the actions has a level of its own, and some frames as
// they were have one too, of the less noisy half.
func TestRolloutLevels(t *testing.T) {
	d, items := rolls(64)
	d.Clip.Rolls.Noisy = 1
	m := &Model{Modalities: []Modality{d.Modality(), d.Clip.Modality(d)}}
	in := &Inputs{Rows: 3, Cu: []int32{0, 3}, More: EncodedKey.With(More{}, items)}
	data := m.Tensors(in, m.Class(in, false))
	all := map[float32]bool{}
	for i, v := range append(data["dif.time"].F32()[:3:3], data["clip.time"].F32()[:6]...) {
		require.False(t, all[v])
		if all[v] = true; i >= 6 {
			require.LessOrEqual(t, v, float32(500))
		}
	}
	require.Equal(t, []int32{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}, data["clip.at"].I32()[:12])
	require.NotZero(t, data["clip.weight"].F32()[5])
	require.Zero(t, data["clip.weight"].F32()[6])
	d.Clip.Rolls.Noisy = 0
	data = m.Tensors(in, m.Class(in, false))
	require.Equal(t, []float32{0, 0, 0}, data["clip.time"].F32()[3:6])
}

// TestClipsArePlanned: memory is planned for the shape that microbatches of several samples have.
func TestClipsArePlanned(t *testing.T) {
	d, items := rolls(64)
	d.TextRows = 2
	m := &Model{Modalities: []Modality{d.Modality(), d.Clip.Modality(d)}}
	for n := range 5 {
		more, cu := []Encoded(nil), []int32{0}
		for k := range n + 1 {
			x := items[0]
			x.From = int32(3 * k)
			more, cu = append(more, x), append(cu, int32(3*k+3))
		}
		in := &Inputs{Rows: 3*n + 3, Cu: cu, More: EncodedKey.With(More{}, more)}
		require.Equal(t, m.Class(in, false), m.Planned(in.Rows, nil))
	}
}

// TestRolloutPad: frames behind the end of an episode are not learnt, and the others have their share.
func TestRolloutPad(t *testing.T) {
	weights := func(pad int) (sum float64, own []float32) {
		d, items := rolls(64)
		items[0].Clip.Pad = pad
		require.NoError(t, d.Check(items, 3))
		m := &Model{Modalities: []Modality{d.Modality(), d.Clip.Modality(d)}}
		in := &Inputs{Rows: 3, Cu: []int32{0, 3}, More: EncodedKey.With(More{}, items)}
		own = m.Tensors(in, m.Class(in, false))["clip.weight"].F32()
		for _, w := range own {
			sum += float64(w)
		}
		return sum, own
	}
	all, own := weights(0)
	require.NotZero(t, own[4])
	sum, own := weights(1)
	require.Zero(t, own[4]+own[5])
	require.NotZero(t, own[3])
	require.InDelta(t, all, sum, 1e-6)
}
