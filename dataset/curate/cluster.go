package curate

import "fmt"

// Clusters joins documents into clusters, and knows the one of each cluster that stays: the root that
// Datatrove's MinhashDedupCluster has, if pairs come in its order (bucket by bucket, by key, then by
// number). It takes eight bytes a document.
type Clusters struct{ parent, size []uint32 }

// documentsMax is how many documents numbers of 32 bits count.
const documentsMax = 1<<32 - 2

// NewClusters returns n documents, each alone.
func NewClusters(n int64) (*Clusters, error) {
	if n > documentsMax {
		return nil, fmt.Errorf("%d documents are over the %d that are joined at a time; divide the input", n,
			int64(documentsMax))
	}
	c := &Clusters{make([]uint32, n), make([]uint32, n)}
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

// Join puts two documents into one cluster: the smaller cluster goes to the larger one, b's to a's if they
// are alike.
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
