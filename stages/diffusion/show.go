package diffusion

import (
	"context"
	"errors"

	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/trained"
)

// shows draws the pictures, as PNG, or clips, as GIF, of train.eval_prompts.
func shows(m *trained.Trained, q *trained.Showing) (func() ([]trained.Shown, error), error) {
	d := m.Model.Denoiser
	if d == nil || d.Sight != nil || d.Hosted {
		return nil, nil
	}
	if d.Takes != nil {
		return nil, errors.New("an autoencoder draws nothing from a prompt; see its pictures with lfactor eval --pictures")
	}
	o := Drawing{Steps: q.Steps, Guidance: q.Guidance}
	if o.Guidance == 0 {
		if o.Guidance = 1; m.Cfg.Run.Diffusion.Drop > 0 {
			o.Guidance = 4 // as lfactor sample has it
		}
	}
	return func() (out []trained.Shown, err error) {
		each := func(p Picture) error {
			var frames []*media.Image
			for t := range p.Size[0] {
				frames = append(frames, media.FromPlanes(p.Pixels, p.Size, t))
			}
			s := trained.Shown{Prompt: p.Caption, File: ".png", Bytes: frames[0].PNG()}
			if len(frames) > 1 {
				s.File = ".gif"
				s.Bytes, err = media.GIF(frames, 16)
			}
			out = append(out, s)
			return err
		}
		if q.Images == nil {
			err = Draw(m, context.Background(), q.Prompts, o, each)
		}
		for i := 0; i < len(q.Images) && err == nil; i++ {
			o.Images = q.Images[i : i+1]
			err = Draw(m, context.Background(), q.Prompts[i:i+1], o, each)
		}
		return out, err
	}, nil
}
