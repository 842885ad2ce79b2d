package tensor

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFiles: large buffers of a pool with a folder lie in files without a name, small ones in memory, and
// nothing stays when the last buffer is given back; a file is used again before the next is made, and one
// that cannot be made is an error.
func TestFiles(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("skipped: files are mapped into memory on Linux alone")
	}
	folder := t.TempDir()
	p := NewPool("test", 0).Files(folder)
	make := func(n int) *Tensor {
		x, err := p.New("x", F32, n)
		require.NoError(t, err)
		for i := range x.F32() {
			x.F32()[i] = float32(n + i)
		}
		return x
	}
	small, a := make(1000), make(1<<20)
	require.Nil(t, small.Buf.in)
	require.Len(t, p.large.regions, 1)
	require.Len(t, p.large.regions[0].mem, fileSize)
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
	a.Release()
	a = make(1 << 19)
	require.Len(t, p.large.regions, 1)
	b := make(17 << 20) // more than a file has
	require.Len(t, p.large.regions, 2)
	require.Greater(t, len(p.large.regions[1].mem), 68<<20)
	require.Less(t, len(p.large.regions[1].mem), 69<<20)
	require.Equal(t, float32(1<<19), a.F32()[0])
	for _, x := range []*Tensor{small, a, b} {
		x.Release()
	}
	require.Empty(t, p.large.regions)
	p.large.folder = folder + "/none"
	_, err = p.New("x", F32, 1<<20)
	require.ErrorContains(t, err, "test: tensor x: a file of 64.0 MiB in "+folder+"/none: ")
	require.ErrorContains(t, err, "plan.offload_dir")
	require.Zero(t, p.Live())
}
