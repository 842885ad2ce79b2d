package demo

import (
	"context"
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

// TestMotionsSeen: the rules see in drawn clips the colour and the direction that they were drawn by, in every
// combination, and nothing in an empty one.
func TestMotionsSeen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, m := range append(motionsOf(true), motionsOf(false)...) {
		b := m.draw(r)
		require.True(t, media.Moves(b))
		c, err := media.FFmpeg{}.ClipBytes(context.Background(), b, allFrames{})
		require.NoError(t, err)
		require.Len(t, c.Frames, clipFrames)
		got := sawMotion(c.Frames)
		require.Equal(t, [2]int{m.Colour, m.Move}, [2]int{got.Colour, got.Move}, m.caption())
	}
	empty := []*media.Image{media.NewImage(clipSide, clipSide), media.NewImage(clipSide, clipSide)}
	require.Equal(t, motion{-1, -1, -1}, sawMotion(empty))
	require.Len(t, motionsOf(true), 16)
}

// allFrames takes every frame of a clip.
type allFrames struct{ media.VideoProcessor }

func (allFrames) Pick(v media.VideoInfo) (at []int, err error) {
	for i := range v.Frames {
		at = append(at, i)
	}
	return at, nil
}
