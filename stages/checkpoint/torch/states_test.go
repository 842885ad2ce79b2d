package torch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestReadsStates: what Megatron's optimizers keep is read from all of their forms, and is the same: that
// of an optimizer that is not distributed, of the distributed one by weights and in buckets, and of a
// rank's file, also where the distributed one's lies beside it.
func TestReadsStates(t *testing.T) {
	for kind, forms := range map[string][]string{"dense": {"model", "reshard", "buckets", "ranks",
		"distrib"},
		"experts": {"model", "ranks", "distrib"}} {
		like := filepath.Join("testdata", "megatron-train-"+kind)
		var first *States
		for _, form := range forms {
			dir := filepath.Join(like, form)
			s, err := OpenMegatronStates(dir, like)
			require.NoError(t, err, "%s %s", kind, form)
			defer s.Close()
			require.EqualValues(t, 3, s.Step, form)
			require.EqualValues(t, 3, s.Updates, form)
			weights, _, err := OpenMegatron(dir, like)
			require.NoError(t, err)
			defer weights.Close()
			if s.Kinds[checkpoint.Master] != nil {
				same(t, weights, s.Kinds[checkpoint.Master])
			} else {
				require.Len(t, s.Kinds, 2, form)
			}
			if first == nil {
				first = s
				continue
			}
			same(t, first.Kinds[checkpoint.ExpAvg], s.Kinds[checkpoint.ExpAvg])
			same(t, first.Kinds[checkpoint.ExpAvgSq], s.Kinds[checkpoint.ExpAvgSq])
		}
	}
	none, err := OpenMegatronStates("testdata/megatron-dense", "testdata/megatron-dense-hf")
	require.NoError(t, err)
	require.Nil(t, none)
	none, err = OpenMegatronStates("testdata/megatron-dense-ranks", "testdata/megatron-dense-hf")
	require.NoError(t, err)
	require.Nil(t, none)
}

// TestReadsGrids: what Megatron's distributed optimizer keeps in the buckets of several ranks of tensor and
// pipeline parallelism, and in files of ranks by buckets and with weights of two types, is what the same
// optimizer, or one that is not distributed, has saved by weights.
func TestReadsGrids(t *testing.T) {
	for kind, forms := range map[string][]string{"grid": {"buckets"}, "tied": {"buckets"},
		"types": {"distrib", "listed"}} {
		like := filepath.Join("testdata", "megatron-train-"+kind)
		whole := map[string]string{"tied": "model"}[kind]
		if whole == "" {
			whole = "reshard"
		}
		want, err := OpenMegatronStates(filepath.Join(like, whole), like)
		require.NoError(t, err, kind)
		defer want.Close()
		require.NotEmpty(t, want.Kinds)
		weights, _, err := OpenMegatron(filepath.Join(like, whole), like)
		require.NoError(t, err)
		defer weights.Close()
		for _, form := range forms {
			got, err := OpenMegatronStates(filepath.Join(like, form), like)
			require.NoError(t, err, "%s %s", kind, form)
			defer got.Close()
			require.EqualValues(t, 2, got.Step)
			require.EqualValues(t, 2, got.Updates)
			require.Len(t, got.Kinds, 3)
			for of := range want.Kinds { //lfvet:order each by itself
				same(t, want.Kinds[of], got.Kinds[of])
			}
			if kind != "types" { // whose float32 copies are finer than the weights
				same(t, weights, got.Kinds[checkpoint.Master])
			}
		}
	}
}

// TestCopiesAreWeights: float32 copies that are not those of their weights are refused by their name.
func TestCopiesAreWeights(t *testing.T) {
	d, err := OpenDCP("testdata/megatron-train-dense/reshard")
	require.NoError(t, err)
	defer d.Close()
	const q, k = "decoder.layers.self_attention.q_layernorm.weight",
		"decoder.layers.self_attention.k_layernorm.weight"
	require.NoError(t, copiesAre(d, map[string]string{q: "optimizer.state.param." + q}))
	require.ErrorContains(t, copiesAre(d, map[string]string{q: "optimizer.state.param." + k}),
		"optimizer.state.param."+k)
}

// TestDistributedBesideRanks: a rank whose distributed optimizer has no file of its state, or one of
// another model, is refused with its name.
func TestDistributedBesideRanks(t *testing.T) {
	like := filepath.Join("testdata", "megatron-train-dense")
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(like, "distrib"))))
	path := filepath.Join(dir, "mp_rank_00", distribFile)
	text, err := os.ReadFile(filepath.Join("testdata", "megatron-train-experts", "distrib", "mp_rank_00",
		distribFile))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_, err = OpenMegatronStates(dir, like)
	require.ErrorContains(t, err, "distrib_optim.pt")
	require.NoError(t, os.Remove(path))
	_, err = OpenMegatronStates(dir, like)
	require.ErrorContains(t, err, "beside it is no distrib_optim.pt")
	require.NoError(t, os.Rename(filepath.Join(dir, "mp_rank_00", rankFile), path))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "mp_rank_00"), os.DirFS(filepath.Join(like, "ranks",
		"mp_rank_00"))))
	_, err = OpenMegatronStates(dir, like) // whose own optimizer is not distributed: the file is not asked
	require.NoError(t, err)
}
