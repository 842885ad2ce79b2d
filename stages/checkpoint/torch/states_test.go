package torch

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestReadsStates: what Megatron's optimizers keep is read from all of their forms, and is the same: that
// of an optimizer that is not distributed, of the distributed one by weights and in buckets, and of a
// rank's file.
func TestReadsStates(t *testing.T) {
	for kind, forms := range map[string][]string{"dense": {"model", "reshard", "buckets", "ranks"},
		"experts": {"model", "ranks"}} {
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
