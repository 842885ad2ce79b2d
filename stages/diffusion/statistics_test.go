package diffusion

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/media"
)

// TestJudge: pictures of a folder are described one by one and compared with another folder's; one that is
// broken is left out and named, and a set with itself is at no distance.
func TestJudge(t *testing.T) {
	dir := t.TempDir()
	for i := range 6 {
		for k, set := range []string{"a", "b/deeper"} {
			p := media.NewImage(9+i, 14)
			for at := range p.Pix {
				p.Pix[at] = byte(at * (i + 1) * (40*k + 3))
			}
			name := filepath.Join(dir, set, fmt.Sprintf("%d.png", i))
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
			require.NoError(t, os.WriteFile(name, p.PNG(), 0o600))
		}
	}
	bad := filepath.Join(dir, "a", "bad.jpg")
	require.NoError(t, os.WriteFile(bad, []byte("no picture"), 0o600))
	const tower = "../../stages/texts/testdata/clip-whole"
	shown := 0
	judge := func(a, b, tower string) (*Judged, error) {
		return Judge(context.Background(), filepath.Join(dir, a), filepath.Join(dir, b), tower, "cpu",
			func(done, all int) { shown = done })
	}
	j, err := judge("a", "b", tower)
	require.NoError(t, err)
	require.Equal(t, 13, shown)
	require.Equal(t, [3]int{6, 6, 6}, [3]int{j.Drawn, j.Reference, j.Width})
	require.Greater(t, j.Frechet, 0.01)
	require.Len(t, j.Skipped, 1)
	require.Contains(t, j.Skipped[0], bad)
	same, err := judge("b", "b", tower)
	require.NoError(t, err)
	require.InDelta(t, 0, same.Frechet, 1e-6)
	require.Equal(t, [2]float64{1, 1}, [2]float64{same.Precision, same.Recall})
	_, err = judge("a", "b", dir)
	require.ErrorContains(t, err, "no file of weights")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "none"), 0o755))
	_, err = judge("a", "none", tower)
	require.ErrorContains(t, err, "no file of a picture below it")
}
