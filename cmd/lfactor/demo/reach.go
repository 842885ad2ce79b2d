package demo

import (
	"context"
	"image"
	"image/color"
	"math"
	"math/rand/v2"

	"github.com/lfactor/lfactor/actors/world"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
)

// The drawn world of the demo of robots: a hand, which begins anywhere, and a disc of one of two colours on a table that
// a camera sees from above. The hand is told to reach it, and where it is itself, and has to see where the disc is.

// Numbers of the world, whose table is 1 by 1.
const (
	reachSide   = 16   // pixels of the camera's picture
	reachStep   = 0.07 // how far the hand moves in a step at most, on each axis
	reachNear   = 0.09 // what counts as reached
	reachMost   = 30   // steps of an attempt
	reachUsed   = 4    // actions that are done before the policy looks again, of the eight that it gives at once
	reachCamera = "observation.images.top"
)

// reachPaints are the colours of discs.
var reachPaints = []struct {
	name  string
	paint color.RGBA
}{{"red", color.RGBA{220, 40, 40, 255}}, {"blue", color.RGBA{50, 80, 230, 255}}}

// reach is one such table.
type reach struct {
	hand, disc [2]float64
	colour     int
}

// newReach draws a table, with the hand away from the disc.
func newReach(r *rand.Rand) *reach {
	place := func() [2]float64 { return [2]float64{0.1 + 0.8*r.Float64(), 0.1 + 0.8*r.Float64()} }
	for {
		if w := (&reach{hand: place(), disc: place(), colour: r.IntN(len(reachPaints))}); far(w.hand, w.disc) > 0.3 {
			return w
		}
	}
}

func far(a, b [2]float64) float64 { return math.Hypot(a[0]-b[0], a[1]-b[1]) }

// move carries out an action: how far to go on each axis, within the hand's reach and the table.
func (w *reach) move(action []float64) {
	for a := range w.hand {
		w.hand[a] = min(1, max(0, w.hand[a]+min(reachStep, max(-reachStep, action[a]))))
	}
}

// done reports whether the hand is where it should be.
func (w *reach) done() bool { return far(w.hand, w.disc) < reachNear }

// teach is what one who sees the table would do.
func (w *reach) teach() []float64 {
	x, y := w.disc[0]-w.hand[0], w.disc[1]-w.hand[1]
	by := min(1, reachStep/max(math.Abs(x), math.Abs(y), 1e-9))
	return []float64{x * by, y * by}
}

// draw is what the camera sees, with side pixels a side.
func (w *reach) draw(side int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			at := [2]float64{(float64(x) + 0.5) / float64(side), (float64(y) + 0.5) / float64(side)}
			c := color.RGBA{30, 30, 34, 255}
			if far(at, w.disc) < 0.12 {
				c = reachPaints[w.colour].paint
			}
			if math.Abs(at[0]-w.hand[0]) < 0.06 && math.Abs(at[1]-w.hand[1]) < 0.06 {
				c = color.RGBA{240, 240, 240, 255}
			}
			img.SetRGBA(x, y, c)
		}
	}
	return img
}

// reachWorld is the table as a world.
type reachWorld struct {
	*reach
	covered bool // the camera sees nothing
}

// Spec implements world.World.
func (w *reachWorld) Spec() world.Spec {
	return world.Spec{Name: "reach", State: 2, Action: 2, Cameras: []string{reachCamera}, FPS: 10}
}

// Reset implements world.World.
func (w *reachWorld) Reset(_ context.Context, seed uint64) (world.Scene, error) {
	w.reach = newReach(rand.New(rand.NewPCG(seed, 100)))
	return w.scene(), nil
}

// Step implements world.World.
func (w *reachWorld) Step(_ context.Context, action []float64) (world.Scene, error) {
	w.move(action)
	return w.scene(), nil
}

// Close implements world.World.
func (w *reachWorld) Close() error { return nil }

// scene is what is seen and told of a table.
func (w *reachWorld) scene() world.Scene {
	s := world.Scene{Task: "reach the " + reachPaints[w.colour].name + " disc", State: []float64{w.hand[0], w.hand[1]},
		Views: []*media.Image{nil}, Expert: w.teach(), Done: w.done(), Success: w.done()}
	if !w.covered {
		img := w.draw(reachSide)
		s.Views[0] = media.NewImage(reachSide, reachSide)
		for i := range reachSide * reachSide {
			copy(s.Views[0].Pix[3*i:], img.Pix[4*i:4*i+3])
		}
	}
	if s.Success {
		s.Reward = 1
	}
	return s
}

// taught records n attempts of the one who sees.
func taught(n int, seed uint64) (all []recordings.RobotEpisode) {
	r := rand.New(rand.NewPCG(seed, 7))
	for range n {
		w := &reachWorld{reach: newReach(r)}
		e := recordings.RobotEpisode{Task: w.scene().Task}
		for range reachMost {
			s := w.scene()
			e.Frames = append(e.Frames, recordings.RobotStep{Images: [][]byte{s.Views[0].PNG()}, State: narrow32(s.State),
				Action: narrow32(s.Expert)})
			if far(w.hand, w.disc) < reachNear/4 {
				break
			}
			w.move(s.Expert)
		}
		all = append(all, e)
	}
	return all
}

func narrow32(v []float64) (out []float32) {
	for _, x := range v {
		out = append(out, float32(x))
	}
	return out
}
