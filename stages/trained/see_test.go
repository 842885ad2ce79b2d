package trained

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
)

// seenRequests are prompts of which some have an image or two among their tokens.
func seenRequests(v *family.Vision, token int32) (out []*sample.Request) {
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range 9 {
		var prompt []int32
		pics := &family.Images{}
		for k := range i % 3 {
			for range 3 + i {
				prompt = append(prompt, rng.Int32N(90))
			}
			g := family.Grid{T: 1, H: v.Merge * (1 + k), W: v.Merge * 2}
			at := int32(len(prompt))
			for range v.Features(g) {
				prompt = append(prompt, token)
			}
			g.Spans = [][2]int32{{at, int32(len(prompt))}}
			pics.Grids = append(pics.Grids, g)
		}
		for range pics.Patches() * v.Tower.PatchDim {
			pics.Values = append(pics.Values, rng.Float32()-0.5)
		}
		for range 20 {
			prompt = append(prompt, rng.Int32N(90))
		}
		r := &sample.Request{Prompt: prompt, Params: sample.Params{Max: 12, Seed: uint64(i),
			Temperature: float64(i%2) / 2}}
		if len(pics.Grids) > 0 {
			r.Images = pics
		}
		out = append(out, r)
	}
	return out
}

// TestSees: with images among its tokens a prompt has the answers and the log-probabilities that the whole text has
// where it is computed at once, as in training, to the bit: alone, beside others, and after pages were given up.
func TestSees(t *testing.T) {
	dir := "../../actors/host/testdata/qwen3.5-vision-mtp"
	src, err := checkpoint.OpenDir(dir)
	require.NoError(t, err)
	m, err := OpenSource(dir, src)
	require.NoError(t, err)
	defer m.Close()
	b := cpu.New(2)
	defer b.Close() //nolint:errcheck // it ends threads
	g, err := m.Generator(b, tensor.F32)
	require.NoError(t, err)
	type drawn struct {
		ids []int32
		lp  []float32
	}
	token, vocab := int32(m.Model.Config.Vision.ImageToken), m.Model.Spec.Vocab
	var want []drawn
	for _, r := range seenRequests(m.Model.Vision, token) {
		pics := family.Images{}
		if r.Images != nil {
			pics = *r.Images
		}
		var d drawn
		require.NoError(t, g.GenerateWith(r.Prompt, pics, r.Params, func(id int32) bool {
			d.ids = append(d.ids, id)
			return true
		}))
		g.Reset()
		z, err := g.LogitsWith(append(append([]int32{}, r.Prompt...), d.ids...), pics)
		require.NoError(t, err)
		d.lp = logProbsOf(b, z[(len(r.Prompt)-1)*vocab:(len(r.Prompt)-1+len(d.ids))*vocab], d.ids)
		want = append(want, d)
	}
	g.Close()
	for _, o := range []sample.EngineOptions{{}, {Pages: 8, Rows: 11}, {Running: 1}} {
		g, err := m.Generator(b, tensor.F32)
		require.NoError(t, err)
		e, err := sample.NewEngine(g, o)
		require.NoError(t, err)
		got := make([]drawn, len(want))
		for i, r := range seenRequests(m.Model.Vision, token) {
			r.Emit = func(k sample.Token) bool {
				got[i].ids, got[i].lp = append(got[i].ids, k.ID), append(got[i].lp, k.LogProb)
				return true
			}
			r.Done = func(sample.End) {}
			require.NoError(t, e.Submit(r))
		}
		for e.Busy() {
			require.NoError(t, e.Step())
		}
		require.Equal(t, want, got, "%+v", o)
		if o.Pages > 0 {
			require.Positive(t, e.Stats().Preempted)
		}
		require.Zero(t, e.Stats().PagesUsed)
		bad := seenRequests(m.Model.Vision, token)[1]
		bad.Images.Grids[0].Spans[0][1]++
		require.ErrorContains(t, e.Submit(bad), "features and")
		e.Close()
	}
}

// logProbsOf are those of tokens under rows of logits, with the bits of training.
func logProbsOf(b *cpu.Backend, z []float32, ids []int32) (out []float32) {
	lp := tensor.Make(tensor.F32, len(ids))
	b.Run(&kernels.Call{Op: kernels.LogitsNLL, In: []*tensor.Tensor{tensor.Of(tensor.F32, z, len(ids),
		len(z)/len(ids)),
		tensor.Of(tensor.I32, ids, len(ids))}, Out: []*tensor.Tensor{lp},
		Attr: kernels.Attr{I: [4]int{kernels.ActivationNumber(tensor.F32)}}})
	b.Sync()
	for _, x := range lp.F32() {
		out = append(out, -x)
	}
	return out
}

// TestSeesNot: a model of text refuses prompts with images.
func TestSeesNot(t *testing.T) {
	b := cpu.New(1)
	defer b.Close() //nolint:errcheck // it ends threads
	blind, err := OpenSource("../../actors/run/testdata/preference/policy", open(t,
		"../../actors/run/testdata/preference/policy"))
	require.NoError(t, err)
	defer blind.Close()
	bg, err := blind.Generator(b, tensor.F32)
	require.NoError(t, err)
	e, err := sample.NewEngine(bg, sample.EngineOptions{})
	require.NoError(t, err)
	defer e.Close()
	require.ErrorContains(t, e.Submit(&sample.Request{Prompt: []int32{1}, Params: sample.Params{Max: 1},
		Images: &family.Images{}}), "does not see")
}

func open(t *testing.T, dir string) checkpoint.Source {
	src, err := checkpoint.OpenDir(filepath.Clean(dir))
	require.NoError(t, err)
	return src
}
