package run

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
)

// A run that waits for a generation says so in its folder, which may not be there yet; the processes
// that do not write its ledger say nothing.
func TestGenerationMark(t *testing.T) {
	for _, leads := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "run")
		c := configs.Run{}
		c.Log.Dir = dir
		c.Data.Paths = []configs.WeightPath{{Path: filepath.Join(t.TempDir(), "manifest.jsonl")}}
		d := &data{r: &Run{cfg: &configs.Config{Run: c}}, leads: leads}
		for _, gen := range []int64{0, 4, 4, 5} {
			_, _, err := d.generation(gen)
			require.ErrorIs(t, err, dataset.ErrNotYet)
			have, err := dataset.ReadGenerationMark(dir)
			require.NoError(t, err)
			if leads && gen > 0 {
				require.Equal(t, gen, have)
			} else {
				require.EqualValues(t, -1, have, "the first generation needs no saying")
			}
		}
		require.NoError(t, dataset.ForgetGenerationMark(dir))
		have, err := dataset.ReadGenerationMark(dir)
		require.NoError(t, err)
		require.EqualValues(t, -1, have)
	}
}
