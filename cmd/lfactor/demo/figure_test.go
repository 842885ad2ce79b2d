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
	all := append(scenesOf(false, 1), scenesOf(true, 1)...)
	require.Len(t, all, 96)
	right, n := 0, 0
	for _, f := range all {
		for range 20 {
			img := f.paint(r)
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
	require.Equal(t, nothing, seen(media.NewImage(figureSide, figureSide)))
}

// TestMotionsSeen: the rules see in drawn clips the colour and the direction that they were drawn by, in every
// combination, and nothing in an empty one.
func TestMotionsSeen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, m := range append(scenesOf(true, 1), scenesOf(false, 1)...) {
		b := m.clip(r)
		require.True(t, media.Moves(b))
		c, err := media.FFmpeg{}.ClipBytes(context.Background(), b, allFrames{})
		require.NoError(t, err)
		require.Len(t, c.Frames, clipFrames)
		got := sawMotion(c.Frames)
		require.Equal(t, [2]int{m[colour], m[move]}, [2]int{got[colour], got[move]}, m.motion())
	}
	empty := []*media.Image{media.NewImage(clipSide, clipSide), media.NewImage(clipSide, clipSide)}
	require.Equal(t, nothing, sawMotion(empty))
	require.Len(t, scenesOf(true, 1), 16)
}

// allFrames takes every frame of a clip.
type allFrames struct{ media.VideoProcessor }

func (allFrames) Pick(v media.VideoInfo) (at []int, err error) {
	for i := range v.Frames {
		at = append(at, i)
	}
	return at, nil
}
