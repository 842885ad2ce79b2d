package diffusion

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/latent"
	"github.com/lfactor/lfactor/stages/trained"
)

// NewPictures is what makes latents and states of a run's images and captions.
func NewPictures(cfg *configs.Config, d *family.Denoiser) (*Pictures, error) {
	c := &cfg.Run.Diffusion
	x := &Pictures{D: d, FPS: c.FPS, Upscale: c.Upscale, Mode: c.Posterior == "mode", Area: c.Area,
		Seed: uint64(cfg.Run.Train.Seed)}
	if len(c.Sizes) == 0 {
		return nil, cfg.Fault("diffusion.sizes", "is not given", "write [256x256] for images of that size")
	}
	for _, s := range c.Sizes {
		size, err := configs.ParseSize(s)
		if err != nil {
			return nil, err // a checked one
		}
		x.Sizes = append(x.Sizes, size)
	}
	if d.Images > 0 {
		looker, err := NewLooker(cfg, d)
		if err != nil {
			return nil, err
		}
		x.Look = looker
	}
	var err error
	if d.Takes != nil {
		x.Encoder = Pixels{}
	} else if x.Encoder, err = OpenAutoencoder(cfg, d.Seen != nil); err != nil {
		return nil, err
	}
	if c.Cache != "off" {
		dir := c.Cache
		if dir == "" {
			dir = filepath.Join(cfg.Run.Log.Dir, "latents")
		}
		x.Cache = dir
	}
	if d.Texts > 0 && c.Text != "none" {
		text, err := NewCaptionEncoder(cfg, d)
		if err != nil {
			return nil, err
		}
		x.Text = text
	}
	for _, size := range x.Sizes {
		shape, err := x.Encoder.Shape(size)
		if err != nil {
			return nil, cfg.Fault("diffusion.sizes", err.Error(), "")
		}
		for a, p := range d.Patch {
			if shape[a+1]%p != 0 {
				return nil, cfg.Fault("diffusion.sizes", fmt.Sprintf("latents of %d×%d×%d pixels are %d×%d×%d, "+
					"no whole patches of %v", size[0], size[1], size[2], shape[1], shape[2], shape[3], d.Patch), "")
			}
		}
		if shape[0] != d.Channels {
			return nil, cfg.Fault("diffusion.autoencoder", fmt.Sprintf("it has latents of %d channels, and the "+
				"model reads %d", shape[0], d.Channels), "take the model's own autoencoder")
		}
	}
	return x, x.oneSize(cfg)
}

// oneSize has rows of one size where a model takes no others together. Rows are packed so; it refuses several of
// them in a microbatch, where sizes could still meet.
func (x *Pictures) oneSize(cfg *configs.Config) error {
	why := "a model of convolutions"
	if x.D.Seen != nil {
		why = "an autoencoder with diffusion.latents: live"
	} else if !x.D.Canvas {
		return nil
	}
	x.alike = true
	for _, a := range x.Sizes {
		for _, b := range x.Sizes {
			if a != b && (x.grid(a) != x.grid(b) || x.D.Seen != nil) && cfg.Run.Train.MicroBatch > 1 {
				return cfg.Fault("diffusion.sizes", fmt.Sprintf("images of %d×%d and of %d×%d pixels "+
					"could meet in a microbatch, and %s takes one size in each", a[1], a[2], b[1], b[2], why),
					"set train.micro_batch: 1, whose sequences are packed of one size, or give one size")
			}
		}
	}
	return nil
}

// sizeOf is what images and clips of a row have in common: of a model of convolutions the grid of latents.
func (x *Pictures) sizeOf(m *dataset.Media) (string, error) {
	size, err := x.size(m)
	if err == nil && x.D.Seen == nil {
		size = x.grid(size)
	}
	return fmt.Sprint(size), err
}

// grid is the tokens of one of Sizes, which the autoencoder takes.
func (x *Pictures) grid(size [3]int) [3]int {
	shape, err := x.Encoder.Shape(size)
	if err != nil {
		panic("trained: a size that was checked: " + err.Error())
	}
	return x.D.Grid(shape)
}

// OpenAutoencoder is that of diffusion.autoencoder. A model that encodes images itself needs its weights only to
// draw: they are read when they are first asked for.
func OpenAutoencoder(cfg *configs.Config, live bool) (Autoencoder, error) {
	const key = "diffusion.autoencoder"
	dir := fit.LatentDir(cfg)
	switch dir {
	case "pixels":
		if cfg.Run.Diffusion.Frames > 0 {
			return nil, cfg.Fault("diffusion.encode_frames",
				"the model learns pixels, which nothing encodes", "remove it")
		}
		return Pixels{}, nil
	case "":
		return nil, cfg.Fault(key, "is not given, and no vae lies beside the model",
			"name the folder of an autoencoder, or pixels")
	}
	x := &unread{dir: dir, open: sync.OnceValues(func() (*latent.Frozen, error) {
		b, err := kernels.Open(cfg.Run.Device, kernels.Options{Strict: cfg.Run.Strict})
		if err != nil {
			return nil, err
		}
		a, err := latent.Open(dir, b)
		if err != nil {
			return nil, cfg.Fault(key, err.Error(), "")
		}
		a.Chunk = cfg.Run.Diffusion.Frames
		return a.Frozen(), fit.TakesFrames(cfg, a.Model)
	})}
	if !live {
		return x.open()
	}
	c, err := latent.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, cfg.Fault(key, err.Error(), "")
	}
	x.model = c.Model()
	if x.print, err = trained.FolderPrint(dir); err != nil {
		return nil, cfg.Fault(key, err.Error(), "")
	}
	return x, nil
}

// unread is an autoencoder whose weights are read when something is encoded or decoded.
type unread struct {
	dir, print string
	model      *latent.Model
	open       func() (*latent.Frozen, error)
}

// Shape implements Autoencoder.
func (x *unread) Shape(size [3]int) ([4]int, error) { return x.model.LatentShape(size) }

// Fingerprint implements Autoencoder.
func (x *unread) Fingerprint() string { return x.print }

// Encode implements Autoencoder.
func (x *unread) Encode(pixels []float32, size [3]int) (mean, deviation []float32, err error) {
	a, err := x.open()
	if err != nil {
		return nil, nil, err
	}
	return a.Encode(pixels, size)
}

// Decode implements Autoencoder.
func (x *unread) Decode(latents []float32, shape [4]int) (pixels []float32, size [3]int, err error) {
	a, err := x.open()
	if err != nil {
		return nil, size, err
	}
	return a.Decode(latents, shape)
}

// Samples is the encoder of samples of images and captions.
func (x *Pictures) Samples(cfg *configs.Config) dataset.SampleEncoder {
	print := format.HashOf("pictures 1", x.Encoder.Fingerprint(), x.Sizes, x.FPS, x.Upscale, x.D.Patch)
	if x.Text != nil {
		print = format.HashOf(print, x.Text.Fingerprint())
	}
	if x.Look != nil {
		print = format.HashOf(print, "look", x.Look.Print)
	}
	e := &format.CaptionEncoder{Key: cfg.Run.Diffusion.CaptionKey, Tokens: x.Tokens, Print: print,
		Mute: x.D.Takes != nil}
	if x.alike {
		e.Alike = x.sizeOf
	}
	if e.Most = x.D.Further; e.Most > 0 {
		e.Condition, e.Print = x.conditionTokens, format.HashOf(print, "changes", e.Most, x.Area)
	}
	return e
}
