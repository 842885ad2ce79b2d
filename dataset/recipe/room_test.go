package recipe

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/lfactor/lfactor/dataset/curate"
)

// Clusters whose table does not fit into memory lie in a file, and are the same; nothing stays in the folder.
func TestClustersOnDisk(t *testing.T) {
	const n = 50_000
	dir := t.TempDir()
	room, free := clusterRoom(dir, n*curate.ClusterBytes, n*curate.ClusterBytes-1)
	if room == nil {
		t.Fatal("a table over the bound is in memory")
	}
	if small, _ := clusterRoom(dir, n*curate.ClusterBytes, n*curate.ClusterBytes); small != nil {
		t.Error("a table within the bound is on disk")
	}
	disk, err := curate.NewClusters(n, room)
	if err != nil {
		t.Fatal(err)
	}
	held, err := curate.NewClusters(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(4, 4))
	for range n {
		a, b := rnd.Uint32N(n), rnd.Uint32N(n)
		disk.Join(a, b)
		held.Join(a, b)
	}
	for i := range uint32(n) {
		if disk.Root(i) != held.Root(i) {
			t.Fatalf("document %d: %d, want %d", i, disk.Root(i), held.Root(i))
		}
	}
	free()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
	if _, err := curate.NewClusters(1<<32, room); err == nil {
		t.Error("more documents than numbers were taken")
	}
}
