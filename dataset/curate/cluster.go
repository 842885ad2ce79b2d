package curate

import "fmt"

// Clusters joins documents into clusters, and knows the one of each cluster that stays: the root that
// Datatrove's MinhashDedupCluster has, if pairs come in its order (bucket by bucket, by key, then by
// number). It takes ClusterBytes a document.
type Clusters struct{ parent, size []uint32 }

// ClusterBytes is what a document takes in a Clusters.
const ClusterBytes = 8

// documentsMax is how many documents numbers of 32 bits count.
const documentsMax = 1<<32 - 2

// NewClusters returns n documents, each alone. room gives space for so many numbers, zeros or not, which may
// lie on disk; nil takes memory.
func NewClusters(n int64, room func(n int64) ([]uint32, error)) (*Clusters, error) {
	if n > documentsMax {
		return nil, fmt.Errorf("%d documents are over the %d that are joined at a time; divide the input", n,
			int64(documentsMax))
	}
	if room == nil {
		room = func(n int64) ([]uint32, error) { return make([]uint32, n), nil }
	}
	all, err := room(2 * n)
	if err != nil {
		return nil, err
	}
	c := &Clusters{all[:n], all[n : 2*n]}
	for i := range c.parent {
		c.parent[i], c.size[i] = uint32(i), 1
	}
	return c, nil
}

// Root returns the document of a document's cluster that stays.
func (c *Clusters) Root(x uint32) uint32 {
	for c.parent[x] != x {
		c.parent[x] = c.parent[c.parent[x]]
		x = c.parent[x]
	}
	return x
}

// Join puts two documents into one cluster: the smaller cluster goes to the larger one, b's to a's if they are alike.
func (c *Clusters) Join(a, b uint32) {
	a, b = c.Root(a), c.Root(b)
	if a == b {
		return
	}
	if c.size[a] < c.size[b] {
		a, b = b, a
	}
	c.parent[b] = a
	c.size[a] += c.size[b]
}
