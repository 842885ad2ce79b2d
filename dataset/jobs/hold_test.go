package jobs

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/topology/machine"
)

// A folder or file that another process writes is refused, and what it has written stays.
func TestTwoWriters(t *testing.T) {
	dir := t.TempDir()
	release, err := machine.HoldFolder(dir)
	require.NoError(t, err)
	_, err = Convert(context.Background(), ConvertConfig{OutputDir: dir})
	require.ErrorContains(t, err, dir+" is being written by another process; wait for it")
	_, err = PackShards(context.Background(), PackConfig{OutputDir: dir})
	require.ErrorContains(t, err, "is being written by another process")
	release()
	again, err := machine.HoldFolder(dir)
	require.NoError(t, err)
	again()

	prefix := filepath.Join(dir, "ids")
	w, err := format.NewIndexedWriter(prefix, 100)
	require.NoError(t, err)
	require.NoError(t, w.Add([]int32{1, 2}))
	_, err = format.NewIndexedWriter(prefix, 100)
	require.ErrorContains(t, err, "ids.bin is being written by another process")
	w.EndDocument()
	require.NoError(t, w.Close())
	b, err := os.ReadFile(prefix + ".bin")
	require.NoError(t, err)
	require.Equal(t, []byte{1, 0, 2, 0}, b)
}
