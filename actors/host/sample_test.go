package host

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets garbage lie for longer: grids of small models make much of it, and none is large.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// sampled are the cases of a grid that the ordinary tier runs: each stride-th, from one that differs with the
// grid's other axis, so that the axes meet; with -long all.
func sampled[T any](t *testing.T, all []T, stride, from int) (out []T) {
	t.Helper()
	if *long {
		return all
	}
	for i := range all {
		if (i+from)%stride == 0 {
			out = append(out, all[i])
		}
	}
	t.Logf("%d of %d cases: add -long", len(out), len(all))
	return out
}

// steps is how many steps a grid is trained for: fewer in the ordinary tier.
func steps(ordinary, whole int64) int64 {
	if *long {
		return whole
	}
	return ordinary
}
