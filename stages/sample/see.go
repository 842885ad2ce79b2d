package sample

import (
	"errors"
	"maps"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// look readies a sequence whose prompt has images.
func (e *Engine) look(s *sequence) error {
	v := e.g.m.Vision
	switch {
	case v == nil:
		return errors.New("the model does not see, and the prompt has images")
	case e.g.m.Sight(len(s.Prompt), s.Images) != nil:
		return errors.New("an engine shows no images to a model in which the tokens of one see each other both ways")
	case s.Began > 0:
		return errors.New("an answer about images that was begun before is not gone on with")
	}
	if err := v.Check(s.Images); err != nil {
		return err
	}
	for _, g := range s.Images.Grids {
		for _, at := range g.Spans {
			if at[0] < 0 || int(at[1]) > len(s.Prompt) {
				return errors.New("an image has no places in the prompt")
			}
		}
	}
	n := len(s.Prompt)
	s.places = v.Positions(n, []int32{0, int32(n)}, s.Images)
	for _, x := range s.places {
		s.after = max(s.after, x+1)
	}
	return nil
}

// unseen reports whether a sequence has images that are not computed.
func (s *sequence) unseen() bool { return s.Images != nil && s.done == 0 }

// gatherSeen is the microbatch of a sequence with images, all its tokens alone; nil where there is none, or
// none has room.
func (e *Engine) gatherSeen() *batch {
	for i := 0; i < len(e.running); i++ { // room may shorten it
		s := e.running[i]
		if !s.unseen() {
			continue
		}
		n := len(s.tokens)
		if e.room(s, n) < n {
			e.drop(s)
			continue
		}
		b := &batch{parts: []part{{s, 0, n, n}}, rows: n, keys: n, heads: 1}
		b.shape = classOf(b)
		b.shape.images = e.g.m.Vision.Class(s.Images.Patches(), s.Images.Frames())
		return b
	}
	return nil
}

// see adds what a model that sees reads of a batch, and takes the tokens away in whose places images are.
func (e *Engine) see(all map[string]*tensor.Tensor, b *batch, ids []int32) {
	v := e.g.m.Vision
	if v == nil {
		return
	}
	places, pics, row := make([]int32, 3*b.shape.rows), family.Images{}, 0
	for _, p := range b.parts {
		s := p.seq
		if p.from == 0 && s.Images != nil {
			pics = *s.Images
			for _, g := range pics.Grids {
				for _, at := range g.Spans {
					for i := at[0]; i < at[1]; i++ {
						ids[i] = -1
					}
				}
			}
		}
		for i := p.from; i < p.to; i++ {
			for axis := range 3 {
				places[3*row+axis] = s.place(i, axis)
			}
			row++
		}
	}
	all["positions3"] = tensor.Of(tensor.I32, places, b.shape.rows, 3)
	maps.Copy(all, v.Data(&pics, v.Shape(b.shape.rows, b.shape.images)))
}

// place is where token i lies on an axis.
func (s *sequence) place(i, axis int) int32 {
	switch {
	case s.Images == nil:
		return int32(i)
	case i < len(s.Prompt):
		return s.places[3*i+axis]
	}
	return s.after + int32(i-len(s.Prompt))
}
