package demo

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/media"
)

// TestFiguresAreSeen: the rules that judge drawn pictures find in each picture of the data what it was drawn
// as, and nothing in one without shapes.
func TestFiguresAreSeen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := append(figuresOf(false), figuresOf(true)...)
	require.Len(t, all, 96)
	right, n := 0, 0
	for _, f := range all {
		for range 20 {
			img := f.draw(r)
			p := media.NewImage(figureSide, figureSide)
			for i := range figureSide * figureSide {
				copy(p.Pix[3*i:], img.Pix[4*i:4*i+3])
			}
			n++
			if seen(p) == f {
				right++
			}
		}
	}
	require.Greater(t, float64(right)/float64(n), 0.99)
	require.Equal(t, figures{-1, -1, -1}, seen(media.NewImage(figureSide, figureSide)))
}
