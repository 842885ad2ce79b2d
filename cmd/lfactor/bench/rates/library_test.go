package rates

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
)

// TestLibrary: what stands for a Python with numpy gives the second floor; one without it gives a reason, or an
// error where it was asked for.
func TestLibrary(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python")
	say := func(text string) {
		require.NoError(t, os.WriteFile(python, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	}
	say(`echo "{\"name\": \"numpy of $OPENBLAS_NUM_THREADS\", \"flops\": 2e9}"`)
	x, err := MeasureLibrary(python, true, 3)
	require.NoError(t, err)
	require.Equal(t, &Library{Name: "numpy of 3", Flops: 2e9}, x)
	x.under(&floor{Products: 4e9, Attention: 2e9, Bytes: 10, Memory: 5}, 10)
	require.InDelta(t, 5, x.Floor, 1e-12)
	require.InDelta(t, 0.5, x.OfFloor, 1e-12)

	say(`echo a; echo "ModuleNotFoundError: No module named 'numpy'" >&2; exit 1`)
	x, err = MeasureLibrary(python, false, 1)
	require.NoError(t, err)
	require.Contains(t, x.Why, "No module named 'numpy'")
	_, err = MeasureLibrary(python, true, 1)
	require.ErrorContains(t, err, "--numpy "+python)
	var wrong exit.Error
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, exit.Usage, wrong.Code)
	say(`echo nothing`)
	x, err = MeasureLibrary(python, false, 1)
	require.NoError(t, err)
	require.Contains(t, x.Why, "nothing")
}
