package fit

import (
	"fmt"
	"path/filepath"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/autoencoders"
	"github.com/lfactor/lfactor/stages/latent"
	"github.com/lfactor/lfactor/stages/texts"
)

// alive is the value of diffusion.encoders and diffusion.latents by which encoders are blocks of the model.
const alive = "live"

// TextDir is the folder of the encoder of captions, "" for none.
func TextDir(c *configs.Config) string { return Beside(c, c.Run.Diffusion.Text, "text_encoder") }

// live puts the encoder of captions before a denoiser where the run has it live.
func live(c *configs.Config, m *family.Model) error {
	if c.Run.Diffusion.Encoders != alive {
		return nil
	}
	if m.Denoiser.Canvas && m.Denoiser.Pooled > 0 { //lfvet:kind it names the models that read two encoders
		return c.Fault("diffusion.encoders", "the model reads two encoders, which are made beforehand", "use cached")
	}
	dir := TextDir(c)
	if dir == "" {
		return c.Fault("diffusion.text_encoder", "is not given, and diffusion.encoders is live",
			"name the encoder's folder, or leave diffusion.encoders out")
	}
	e, err := texts.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return c.Fault("diffusion.text_encoder", err.Error(), "")
	}
	if err := FitsText(c, m.Denoiser, e); err != nil {
		return err
	}
	return texts.Before(m, e, TextTake(m.Denoiser))
}

// TextTake is what a denoiser reads of an encoder.
func TextTake(d *family.Denoiser) texts.Take { return texts.Take{Norm: true, Pooled: d.Pooled > 0} }

// FitsText refuses an encoder whose states are not those that a denoiser reads.
func FitsText(c *configs.Config, d *family.Denoiser, e *texts.Model) error {
	switch {
	case e.Width != d.Texts:
		return c.Fault("diffusion.text_encoder", fmt.Sprintf("its states have %d numbers, and the model reads %d",
			e.Width, d.Texts), "take the model's own encoder")
	case d.Pooled > 0 && e.Pooled != d.Pooled:
		return c.Fault("diffusion.text_encoder", fmt.Sprintf("its pooled rows have %d numbers, and the model reads %d",
			e.Pooled, d.Pooled), "take the model's own encoder")
	}
	return nil
}

// LatentDir is the folder of the autoencoder, "" for none.
func LatentDir(c *configs.Config) string { return Beside(c, c.Run.Diffusion.Autoencoder, "vae") }

// seen puts the autoencoder's encoder before a denoiser where the run has it live.
func seen(c *configs.Config, m *family.Model) error {
	const key, made = "diffusion.latents", "use cached"
	d := &c.Run.Diffusion
	if d.Latents != alive {
		return nil
	}
	switch x := m.Denoiser; {
	case x.Takes != nil || x.Sight != nil: //lfvet:kind they read no latents of an autoencoder
		return nil // which do not read the key: another rule says so
	case x.Given > 0 || x.Images > 0:
		return c.Fault(key, "the model is given the first frame of every clip, whose latents and features are made "+
			"beforehand", made)
	case d.Changes > 0:
		return c.Fault(key, "images that a sample has beside the one that is learnt are encoded beforehand", made)
	}
	dir := LatentDir(c)
	if dir == "pixels" || dir == "" {
		return c.Fault(key, "there is no autoencoder: the model learns pixels, or diffusion.autoencoder is not given",
			"name an autoencoder's folder, or leave it out")
	}
	a, err := latent.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return c.Fault("diffusion.autoencoder", err.Error(), "")
	}
	var sizes [][3]int
	for _, text := range d.Sizes {
		size, err := configs.ParseSize(text)
		if err != nil {
			return nil // its section says so
		}
		sizes = append(sizes, size)
	}
	if err := TakesFrames(c, a.Model()); err != nil {
		return err
	}
	m.Denoiser.Process.Mode = d.Posterior == "mode"
	if err := autoencoders.Before(m, a.Model(), sizes, d.Frames); err != nil {
		return c.Fault("diffusion.sizes", err.Error(), "")
	}
	return nil
}

// TakesFrames refuses parts of clips for an autoencoder of pictures.
func TakesFrames(c *configs.Config, a *latent.Model) error {
	if c.Run.Diffusion.Frames > 0 && a.Frames == 0 {
		return c.Fault("diffusion.encode_frames", "the autoencoder takes pictures, which have one frame", "remove it")
	}
	return nil
}
