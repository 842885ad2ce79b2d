package cpu

import (
	"bytes"
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/kernelstest"
)

var long = flag.Bool("long", false, "run the long tier as well")

// tested are the levels to test. Under the race detector plain Go takes long, and the loops above it are the
// same: it is left out if there is another.
func tested() []*isa {
	if l := levels(); raced && len(l) > 1 {
		return l[:1]
	}
	return levels()
}

func each(t *testing.T, threads int, f func(t *testing.T, b *Backend)) {
	for _, k := range tested() {
		t.Run(k.name, func(t *testing.T) {
			b := newBackend(k, threads)
			defer b.Close()
			f(t, b)
		})
	}
}

func TestConformance(t *testing.T) {
	each(t, 2, func(t *testing.T, b *Backend) { kernelstest.Run(t, b) })
}

// Results must not depend on the number of threads; the ordinary tier has one and three.
func TestThreads(t *testing.T) {
	for _, k := range tested() {
		var one [][]byte
		counts := []int{1, 3}
		if *long {
			counts = []int{1, 2, 3, 5}
		}
		for _, n := range counts {
			b := newBackend(k, n)
			i := 0
			kernelstest.Calls(func(name string, c *kernels.Call) {
				b.Run(c)
				for _, o := range c.Out {
					if o == nil {
						continue
					}
					if n == 1 {
						one = append(one, bytes.Clone(o.Bytes()))
					} else {
						require.True(t, bytes.Equal(one[i], o.Bytes()), "%s: %s with %d threads", k.name,
							name, n)
					}
					i++
				}
			})
			b.Close()
		}
	}
}

// TestTorch holds convolutions, norms over space, pools and resizes to PyTorch on 300 random shapes of each:
// 900 of convolutions, at every level of instructions.
func TestTorch(t *testing.T) {
	if !*long {
		t.Skip("skipped: -long makes results of PyTorch for 300 random shapes of each operation")
	}
	out := kernelstest.Torch(t)
	each(t, 2, func(t *testing.T, b *Backend) {
		seen := kernelstest.Golden(t, b, bytes.NewReader(out))
		t.Log(seen)
		require.GreaterOrEqual(t, seen[kernels.Conv], 900)
	})
}
