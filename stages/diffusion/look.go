package diffusion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/texts"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// looker makes features of the images that clips begin with, by CLIP's vision encoder. It opens weights when
// they are needed first.
type looker struct {
	processor *media.Processor
	Print     string
	Side      int // of the images that it reads, in pixels

	mu    sync.Mutex
	open  func() (*texts.Sight, error)
	sight *texts.Sight
}

// NewLooker reads what the section diffusion says of an encoder of images.
func NewLooker(cfg *configs.Config, d *family.Denoiser) (*looker, error) {
	const key = "diffusion.image_encoder"
	dir := fit.Beside(cfg, cfg.Run.Diffusion.Image, "image_encoder")
	if dir == "" {
		return nil, cfg.Fault(key, "is not given, and no image_encoder lies beside the model",
			"name the folder of CLIP's vision encoder")
	}
	rows, width, side, err := texts.SightOf(dir)
	if err != nil {
		return nil, cfg.Fault(key, err.Error(), "")
	}
	if rows != d.ImageRows || width != d.Images {
		return nil, cfg.Fault(key, fmt.Sprintf("it gives %d rows of %d numbers, and the model reads %d of %d", rows,
			width, d.ImageRows, d.Images), "take the model's own encoder")
	}
	from := filepath.Join(filepath.Dir(filepath.Clean(dir)), "image_processor")
	if !machine.Exists(from) {
		from = dir
	}
	x := &looker{Side: side}
	if x.processor, err = media.LoadFor(from, 1, 1); err != nil {
		return nil, cfg.Fault(key, err.Error(), "")
	}
	print, err := trained.FolderPrint(dir)
	if err = cmp.Or(err, trained.HasWeights(dir)); err != nil {
		return nil, cfg.Fault(key, err.Error(), "")
	}
	parts := []any{"look 2", print} // and of which pixels it reads
	for _, name := range []string{"processor_config.json", "preprocessor_config.json"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, cfg.Fault(key, err.Error(), "")
		}
		parts = append(parts, string(text))
	}
	x.Print = format.HashOf(parts...)
	device, strict := cfg.Run.Device, cfg.Run.Strict
	x.open = func() (*texts.Sight, error) {
		b, err := kernels.Open(device, kernels.Options{Strict: strict})
		if err != nil {
			return nil, err
		}
		return texts.OpenSight(dir, b, tensor.F32)
	}
	return x, nil
}

// features are those of an image.
func (l *looker) features(p *media.Image) ([]float32, error) {
	f, err := l.processor.Image.Image(p, 1)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sight == nil {
		if l.sight, err = l.open(); err != nil {
			return nil, err
		}
	}
	return l.sight.Encode(f.Values())
}

// Looked are the features of an image whose file has a digest, kept or made.
func (x *Pictures) Looked(digest string, image func() (*media.Image, error)) ([]float32, error) {
	v, err := x.Once(fmt.Sprintf("image %s %s", x.Look.Print, digest), func() ([][]float32, error) {
		p, err := image()
		if err != nil {
			return nil, err
		}
		f, err := x.Look.features(p)
		return [][]float32{f}, err
	})
	if err != nil {
		return nil, err
	}
	if len(v) != 1 || len(v[0]) != x.D.ImageRows*x.D.Images {
		return nil, fmt.Errorf("the features of its first frame are no %d rows of %d", x.D.ImageRows, x.D.Images)
	}
	return v[0], nil
}

// first is an image, or the first frame of a clip, as it is.
func (x *Pictures) first(m *dataset.Media) (*media.Image, error) {
	if m.Kind == dataset.Image {
		return media.Decode(m.Bytes, media.Options{White: true, Turn: true})
	}
	clip, err := media.FFmpeg{}.ClipBytes(context.Background(), m.Bytes, every(x.FPS, 1))
	if err != nil {
		return nil, err
	}
	return clip.Frames[0], nil
}
