package family

import (
	"fmt"
	"slices"
)

// Check reports latents that do not fit their rows or the denoiser.
func (d *Denoiser) Check(items []Encoded, rows int) error {
	for i, x := range items {
		n := x.Tokens()
		switch {
		case d.Hosted:
			if err := d.hosted(i, &x, rows); err != nil {
				return err
			}
		case len(x.With) > 0 && !d.Joint:
			return fmt.Errorf("latents %d have %d further images, and the model reads one", i+1, len(x.With))
		case n < 1 || int(x.From)+n > rows:
			return fmt.Errorf("latents %d of %v tokens from row %d of %d", i+1, x.Grid, x.From, rows)
		case d.Canvas && (d.Takes == nil && x.Grid[0] != 1 || x.Grid != items[0].Grid):
			return fmt.Errorf("latents %d are %v and latents 1 %v: a model of convolutions takes images of one "+
				"size in a microbatch", i+1, x.Grid, items[0].Grid)
		case d.Canvas && d.Takes == nil && max(x.Grid[1], x.Grid[2]) > canvasMax:
			return fmt.Errorf("latents %d are %v, at most %d rows and columns", i+1, x.Grid, canvasMax)
		case d.Seen != nil && x.X0 == nil:
			if err := d.Seen.fits(i, &x, &items[0]); err != nil {
				return err
			}
		case len(x.X0) != n*d.Width():
			return fmt.Errorf("latents %d have %d numbers, want %d of %v tokens of %d", i+1, len(x.X0),
				n*d.Width(), x.Grid, d.Width())
		case len(x.Given) != n*d.GivenWidth():
			return fmt.Errorf("latents %d are given %d numbers, want %d of %v tokens of %d", i+1, len(x.Given),
				n*d.GivenWidth(), x.Grid, d.GivenWidth())
		case len(x.Image) != d.ImageRows*d.Images:
			return fmt.Errorf("features of image %d are %d numbers, want %d rows of %d", i+1, len(x.Image),
				d.ImageRows, d.Images)
		case d.looks() && len(x.Views) != d.Sight.Views:
			return fmt.Errorf("sample %d has %d views, want %d", i+1, len(x.Views), d.Sight.Views)
		case d.Sight != nil && d.Sight.Token && len(x.State) != d.Sight.State:
			return fmt.Errorf("sample %d has a state of %d numbers, want %d", i+1, len(x.State), d.Sight.State)
		case d.Sight != nil && d.Sight.Whole() && (len(x.State) != d.Sight.State || !d.chunk(&x)):
			return fmt.Errorf("sample %d has a state of %d numbers and a chunk of %v, want %d and %v", i+1,
				len(x.State), x.Grid, d.Sight.State, d.ChunkGrid())
		case d.Sight != nil && d.Sight.Whole() && slices.ContainsFunc(x.Views, missing):
			return fmt.Errorf("sample %d lacks a view, and the model reads all of them", i+1)
		case x.Robot < 0 || int(x.Robot) >= max(1, d.Robots):
			return fmt.Errorf("sample %d is of robot %d, and the model knows %d", i+1, x.Robot, max(1, d.Robots))
		case d.Words.Rows > 0 && (len(x.IDs) != d.Words.Rows || len(x.State) != d.Sight.State):
			return fmt.Errorf("sample %d has %d tokens and a state of %d numbers, want %d and %d", i+1, len(x.IDs),
				len(x.State), d.Words.Rows, d.Sight.State)
		case d.Words.Image > 0 && (len(x.State) != d.Sight.State || d.placed(&x) != latents{d}.seen(&x)):
			return fmt.Errorf("sample %d has a state of %d numbers and places for %d rows of what it sees, want %d and %d",
				i+1, len(x.State), d.placed(&x), d.Sight.State, latents{d}.seen(&x))
		case min(x.Pad, x.Lead) < 0 || x.Pad+x.Lead > 0 && x.Pad+x.Lead >= x.Grid[0]*x.Grid[1]*x.Grid[2]:
			return fmt.Errorf("sample %d has %d rows of %v that are not learnt", i+1, x.Pad+x.Lead, x.Grid)
		case x.Clean < 0 || x.Clean > 0 && (x.Clean >= x.Grid[0] || d.Process.First == 0 && d.Parts == 0):
			return fmt.Errorf("latents %d of %d frames have %d without noise", i+1, x.Grid[0], x.Clean)
		case len(x.Levels) > 0 && len(x.Levels) != d.Parts:
			return fmt.Errorf("sample %d has %d levels of noise, want %d", i+1, len(x.Levels), d.Parts)
		case d.Clip != nil && !d.Clip.fits(x.Clip):
			return fmt.Errorf("sample %d has no clip of whole frames of %v tokens of %d numbers", i+1,
				d.Clip.Grid(), d.Clip.Latents.Width())
		case d.Texts > 0 && (len(x.Text)%d.Texts != 0 || len(x.None)%d.Texts != 0):
			return fmt.Errorf("states of caption %d are %d numbers, no multiple of %d", i+1, len(x.Text), d.Texts)
		}
	}
	return nil
}

// chunk reports whether a sample has as many actions as the policy gives, or as a block of them has.
func (d *Denoiser) chunk(x *Encoded) bool {
	want := d.ChunkGrid()
	if d.Clip == nil || d.Clip.Blocks == nil || x.Clip == nil {
		return x.Grid == want
	}
	if x.Clip.Part == NoisyPart {
		want[0] = 1
	}
	return x.Grid == want && len(x.Clip.States) == (want[0]-1)*d.Sight.State
}

// fits reports whether a clip is one that the policy reads: of all of its frames, or of the first, or of
// those that are known and of a block that is drawn.
func (f *ClipStream) fits(c *Clip) bool {
	want := f.Grid()
	if c == nil || c.Pad < 0 || c.Pad >= c.Grid[0] || len(c.X0) != c.Tokens()*f.Latents.Width() {
		return false
	}
	if b := f.Blocks; b != nil {
		frames := want[0]
		if c.Part == NoisyPart {
			frames = c.Known + b.Frames
		}
		return c.Grid == [3]int{frames, want[1], want[2]} && frames <= want[0] && (frames-1)%b.Frames == 0 &&
			len(c.Given) == c.Tokens()*f.Latents.GivenWidth()
	}
	return c.Grid == want || c.Grid == [3]int{1, want[1], want[2]}
}
