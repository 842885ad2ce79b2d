package torch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestReadsDeepSpeed: what DeepSpeed has written under ZeRO 1, 2 and 3 on two processes, and its universal
// form, gives the float32 weights that its own script puts together, and the same moments in both forms.
func TestReadsDeepSpeed(t *testing.T) {
	moments := map[string]*States{}
	for name, want := range map[string]string{"zero1": "zero1", "zero2": "zero2", "zero3": "zero3",
		"universal": "zero2"} {
		dir := filepath.Join("testdata", "deepspeed-"+name)
		at := DeepSpeedDir(dir)
		require.Equal(t, dir, filepath.Dir(at))
		src, st, err := OpenDeepSpeed(at)
		require.NoError(t, err, name)
		f, err := checkpoint.OpenFile(filepath.Join("testdata", "deepspeed-hf", want+".safetensors"))
		require.NoError(t, err)
		same(t, f, src)
		require.EqualValues(t, 2, st.Step, name)
		require.EqualValues(t, 2, st.Updates, name)
		require.Len(t, st.Kinds, 2, name)
		moments[name] = st
		require.NoError(t, f.Close())
	}
	for _, kind := range []string{checkpoint.ExpAvg, checkpoint.ExpAvgSq} {
		same(t, moments["zero2"].Kinds[kind], moments["universal"].Kinds[kind])
	}
	for _, st := range moments {
		require.NoError(t, st.Close())
	}
}

// TestDeepSpeedIsWhole: a rank without its file, one too many, a file of another run's model, and ranks of
// tensor parallelism are refused.
func TestDeepSpeedIsWhole(t *testing.T) {
	file := func(stage string, rank int) string {
		return fmt.Sprintf(stage+"zero_pp_rank_%d_mp_rank_00_optim_states.pt", rank)
	}
	for stage, prefix := range map[string]string{"zero1": "bf16_", "zero2": "", "zero3": ""} {
		from := DeepSpeedDir(filepath.Join("testdata", "deepspeed-"+stage))
		try := func(want string, change func(dir string) error) {
			t.Helper()
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
			require.NoError(t, change(dir))
			_, _, err := OpenDeepSpeed(dir)
			require.ErrorContains(t, err, want, stage)
		}
		move := func(dir, a, b string) error {
			return os.Rename(filepath.Join(dir, a), filepath.Join(dir,
				b))
		}
		try("missing: the directory has files of 1 ranks", func(dir string) error {
			return os.Remove(filepath.Join(dir, file(prefix, 0)))
		})
		try("of data parallelism", func(dir string) error {
			return os.Remove(filepath.Join(dir, file(prefix,
				1)))
		})
		try("tensor parallelism", func(dir string) error {
			return move(dir, file(prefix, 1), strings.Replace(file(prefix, 1), "mp_rank_00", "mp_rank_01",
				1))
		})
		try("missing: the directory has files of 2 ranks", func(dir string) error {
			return move(dir, file(prefix, 1), file(prefix, 2))
		})
		if stage != "zero3" {
			try("file is not there", func(dir string) error {
				return os.Remove(filepath.Join(dir,
					modelStates))
			})
		}
	}
}
