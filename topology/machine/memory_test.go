package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMemoryLimit: the least of the machine's memory and the limits of all control groups around the
// process, of both versions.
func TestMemoryLimit(t *testing.T) {
	root := t.TempDir()
	put := func(file, text string) {
		path := filepath.Join(root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	require.Zero(t, MemoryLimit(root), "nothing is known")
	put("proc/meminfo", "MemTotal:       1024 kB\nMemFree: 1 kB\n")
	require.EqualValues(t, 1<<20, MemoryLimit(root))
	put("proc/self/cgroup", "12:cpu,cpuacct:/a\n9:memory:/a/b\n0::/user/me\n")
	require.EqualValues(t, 1<<20, MemoryLimit(root))
	put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n")
	put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "700000\n")
	require.EqualValues(t, 700000, MemoryLimit(root), "the group around it")
	put("sys/fs/cgroup/user/me/memory.max", "max\n")
	put("sys/fs/cgroup/user/memory.max", "500000\n")
	require.EqualValues(t, 500000, MemoryLimit(root))
	require.Positive(t, MemoryShare(2), "this machine says something")
	require.Equal(t, MemoryShare(1)/2, MemoryShare(2))
}
