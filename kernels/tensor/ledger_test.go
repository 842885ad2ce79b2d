package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAtPeak: a pool tells who held what when most was live, by name and block, though some of it has gone and others
// have come since; what it held before it was asked to is not among it. A pool that is not asked knows nothing.
func TestAtPeak(t *testing.T) {
	p := NewPool("p", 0)
	make := func(name string, n int) *Tensor {
		x, err := p.New(name, F32, n)
		require.NoError(t, err)
		return x
	}
	before := make("before", 1000)
	require.Nil(t, p.AtPeak())
	p.Note().Note() // twice is once
	w := make("weight", 64)
	p.Block(3)
	a, b := make("act", 32), make("act", 32)
	p.Block(-1)
	g := make("grad", 128) // the peak: 256 + 256 + 512
	a.Release()
	before.Release()
	x := make("later", 16) // less than a gave back
	p.Block(4)
	want := []Holding{{"grad", -1, 1, 512}, {"act", 3, 2, 256}, {"weight", -1, 1, 256}}
	require.Equal(t, want, p.AtPeak())
	for _, l := range []*Tensor{w, b, g, x} {
		l.Release()
	}
	require.Equal(t, want, p.AtPeak(), "all gone")
	y := make("higher", 1500)
	require.Equal(t, []Holding{{"higher", 4, 1, 6016}}, p.AtPeak(), "a higher peak takes its place")
	y.Release()
}
