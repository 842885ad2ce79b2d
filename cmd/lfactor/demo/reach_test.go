package demo

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReach: one who sees reaches every disc in the steps of an attempt, within what the hand can do; the
// camera sees the disc in its colour and the hand where they are; recordings are the same from one seed,
// and none begins at its end.
func TestReach(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		w := newReach(r)
		require.False(t, w.done())
		img := w.draw(100)
		paint := reachPaints[w.colour].paint
		require.Equal(t, paint, img.RGBAAt(int(100*w.disc[0]), int(100*w.disc[1])))
		require.Equal(t, uint8(240), img.RGBAAt(int(100*w.hand[0]), int(100*w.hand[1])).B)
		steps := 0
		for ; !w.done(); steps++ {
			before := w.hand
			a := w.teach()
			w.move(a)
			for k := range a {
				require.LessOrEqual(t, max(a[k], -a[k]), reachStep+1e-12)
				require.InDelta(t, before[k]+a[k], w.hand[k], 1e-12)
			}
		}
		require.LessOrEqual(t, steps, reachMost)
	}
	a, b := taught(5, 1), taught(5, 1)
	require.Equal(t, a, b)
	require.NotEqual(t, a, taught(5, 2))
	for _, e := range a {
		require.Greater(t, len(e.Frames), 2)
	}
}

// TestDemoRobotWithFewSteps: the demo runs to its end with few steps, says that they show less, leaves
// its recordings, its page and an export behind, and shows the same twice.
func TestDemoRobotWithFewSteps(t *testing.T) {
	t.Parallel()
	var pages [2][]byte
	for i := range pages {
		dir := t.TempDir()
		var out bytes.Buffer
		show := &session{ctx: context.Background(), dir: dir, steps: 3, full: 1500, out: &out}
		require.NoError(t, show.robot())
		require.Contains(t, out.String(), "3 steps show less than 1500 do")
		require.FileExists(t, filepath.Join(dir, "recordings", "meta", "stats.json"))
		require.FileExists(t, filepath.Join(dir, "corrected", "release_hf_weights", "model.safetensors"))
		require.FileExists(t, filepath.Join(dir, "corrections", "meta", "stats.json"))
		require.Contains(t, show.result, "reached_covered")
		require.Contains(t, show.result, "reached_before")
		var err error
		pages[i], err = os.ReadFile(filepath.Join(dir, "attempts.html"))
		require.NoError(t, err)
	}
	require.Equal(t, pages[0], pages[1])
}
