package host

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// indexerGolden is what bench/golden/indexer_loss.py writes: both stages of training with an indexer.
type indexerGolden struct {
	Coef           float64
	Warmup, Sparse struct {
		Loss     float64
		Indexers []float64
		Curve    []float64
	}
	grads golden // whose file has the gradients
}

func openIndexer(t *testing.T, name string) (g indexerGolden) {
	path := filepath.Join("testdata", "indexer", name)
	text, err := os.ReadFile(path + ".json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &g))
	g.grads.t = t
	g.grads.file, err = checkpoint.OpenFile(path + ".safetensors")
	require.NoError(t, err)
	return g
}

// indexing prepares a golden model for a stage.
func (g *golden) indexing(coef float64, warmup bool, more func(j *layout.Design)) {
	g.m.Index(block.Indexing{Scale: coef, Dense: warmup})
	g.plan = func(j *layout.Design) {
		if warmup {
			j.Frozen = func(name string) bool { return !family.IndexerParam(name) }
		}
		if more != nil {
			more(j)
		}
	}
}

// TestIndexerStages holds both stages of training with an indexer to PyTorch, on one device: losses 1e-5,
// gradients of the indexer 1e-4, and the curve 1e-4 relative, as TestGoldenTraining does.
func TestIndexerStages(t *testing.T) {
	for _, name := range []string{"deepseek-v3.2", "glm5"} {
		want := openIndexer(t, name)
		require.NotEmpty(t, want.Warmup.Indexers)
		for _, warmup := range []bool{true, false} {
			stage, facts := "sparse", want.Sparse
			if warmup {
				stage, facts = "warmup", want.Warmup
			}
			t.Run(name+" "+stage, func(t *testing.T) {
				g := openGolden(t, name)
				g.indexing(want.Coef, warmup, nil)
				worst, n := 0.0, 0
				losses, _ := g.train(layout.MeshOf(&configs.Plan{PP: 1, DP: 1, CP: 1, TP: 1, EP: 1, ETP: 1}),
					goldenBackends["cpu"], int64(len(facts.Curve)), func(_ *layout.Layout, _ int, r *Rank) {
						for _, p := range r.c.Params {
							if family.IndexerParam(p.Name) {
								_, x := want.grads.read(stage + "." + g.m.Source(p.Name).Name)
								e := relative(r.owned[p.Name].F32(), x)
								require.LessOrEqual(t, e, 1e-4, p.Name)
								worst, n = max(worst, e), n+1
							}
						}
					})
				require.Positive(t, n)
				require.InEpsilon(t, facts.Loss, losses[0], 1e-5)
				for i, loss := range facts.Curve {
					require.InEpsilon(t, loss, losses[i], 1e-4, "loss of step %d", i+1)
				}
				t.Logf("figure %s %s gradients %.1e of %d", name, stage, worst, n)
			})
		}
	}
}

// TestSparsePlans trains models with sparse attention and their indexers with heads, tokens, layers and
// experts shared out: losses are PyTorch's, within what sums in another order leave.
func TestSparsePlans(t *testing.T) {
	for i, p := range []struct {
		configs.Plan
		ring, zigzag bool
		chunks       int
		rc           grad.Recompute
	}{
		{Plan: configs.Plan{PP: 2, TP: 2}},
		{Plan: configs.Plan{PP: 4, TP: 1, EP: 1}, rc: grad.RecomputeFull},
		{Plan: configs.Plan{PP: 1, TP: 2, EP: 2, SequenceParallel: true, Zero: 1}},
		{Plan: configs.Plan{PP: 1, TP: 1, CP: 2, Zero: 2}, zigzag: true},
		{Plan: configs.Plan{PP: 2, TP: 2, CP: 2, EP: 2}, rc: grad.RecomputeSelective},
		{Plan: configs.Plan{PP: 1, TP: 2, CP: 2, Ulysses: 2, Zero: 3}},
		{Plan: configs.Plan{PP: 1, TP: 1, CP: 2}, ring: true, zigzag: true},
		{Plan: configs.Plan{PP: 2, TP: 1}, chunks: 4},
		{Plan: configs.Plan{PP: 1, TP: 2, CP: 2}, chunks: 2, zigzag: true},
	} {
		for j, name := range []string{"deepseek-v3.2", "glm5"} {
			warmup := (i+j)%2 == 0
			p.DP, p.CP, p.EP, p.ETP = 1, max(1, p.CP), max(1, p.EP), 1
			t.Run(planName(name, warmup, i), func(t *testing.T) {
				want, g := openIndexer(t, name), openGolden(t, name)
				curve := want.Sparse.Curve[:4]
				if warmup {
					curve = want.Warmup.Curve[:4]
				}
				g.indexing(want.Coef, warmup, func(j *layout.Design) {
					j.SeqParallel, j.Zero, j.Ring, j.Zigzag = p.SequenceParallel, p.Zero, p.ring, p.zigzag
					j.Recompute = p.rc
					if p.chunks > 1 {
						j.Chunks, j.Schedule = p.chunks, "chunkpipe"
					}
				})
				losses, _ := g.train(layout.MeshOf(&p.Plan), goldenBackends["cpu"], int64(len(curve)), nil)
				for i, loss := range curve {
					require.InEpsilon(t, loss, losses[i], 1e-4, "loss of step %d", i+1)
				}
			})
		}
	}
}

func planName(name string, warmup bool, i int) string {
	stage := map[bool]string{true: "warmup", false: "sparse"}[warmup]
	return name + " " + stage + " plan " + string(rune('a'+i))
}
