package policies

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// The encoders of a policy with a clip: those that its folder names, and what an export says of them.

// encoders is the folder of a pipeline that a run has both encoders of, or the autoencoder of where the model
// reads captions itself; "" where they do not lie in one.
func encoders(cfg *configs.Config, worded bool) string {
	vae, text := filepath.Clean(fit.LatentDir(cfg)), filepath.Clean(fit.TextDir(cfg))
	root, err := filepath.Abs(filepath.Dir(vae))
	if worded { // there is one alone
		text = filepath.Join(filepath.Dir(vae), "text_encoder")
	}
	if err != nil || filepath.Base(vae) != "vae" || text != filepath.Join(filepath.Dir(vae), "text_encoder") {
		return ""
	}
	return root
}

// filmed opens what encodes for a policy with a clip that acts: the encoders of its run, or, of a folder,
// those of the pipeline that its config.json names, which hubs keep.
func filmed(m *trained.Trained, x *Robots) (err error) {
	if x.D.Clip == nil || x.film != nil {
		return nil
	}
	if c := &m.Cfg.Run.Diffusion; c.Autoencoder == "" && fit.LatentDir(m.Cfg) == "" {
		b, err := os.ReadFile(filepath.Join(m.Dir, "config.json"))
		if err != nil {
			return err
		}
		var at map[string]json.RawMessage
		name := cmp.Or(x.D.EncodersHub, wanHub)
		if err := json.Unmarshal(b, &at); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(m.Dir, "config.json"), err)
		}
		if v := at[x.D.EncodersKey]; v != nil {
			if err := json.Unmarshal(v, &name); err != nil {
				return fmt.Errorf("%s: %s: %s is no folder", filepath.Join(m.Dir, "config.json"), x.D.EncodersKey, v)
			}
		}
		root, err := pipelineOf(m, name, x.D.EncodersKey)
		if err != nil {
			return err
		}
		if c.Autoencoder = filepath.Join(root, "vae"); !x.D.Worded() {
			c.Text = filepath.Join(root, "text_encoder")
		}
		c.Image = imageEncoderIn(m, root)
		if v := at[x.D.ImageKey]; x.D.ImageKey != "" && v != nil {
			if err := json.Unmarshal(v, &c.Image); err != nil {
				return fmt.Errorf("%s: %s: %s is no folder", filepath.Join(m.Dir, "config.json"), x.D.ImageKey, v)
			}
			if c.Image != "" {
				if c.Image, err = imageEncoderOf(m, c.Image); err != nil {
					return err
				}
			}
		}
	}
	if x.film, err = newFilmer(m.Cfg, x.D, false); err == nil && x.learnt != "" && x.learnt != x.film.print() {
		err = m.Cfg.Fault("diffusion.autoencoder",
			"it and diffusion.text_encoder are not those that the policy learnt by",
			"give back their folders as they were")
	}
	return err
}

// Encode has a policy with a clip read views and captions by the encoders of a pipeline's folder, which has vae
// and text_encoder, in the place of those that it names.
func Encode(m *trained.Trained, dir string) error {
	if m.Model.Denoiser == nil || m.Model.Denoiser.Clip == nil {
		return exit.Usagef("%s has views and captions encoded by no others", m.Dir)
	}
	parts := []string{"vae", "text_encoder"}
	switch {
	case m.Model.Denoiser.Images > 0:
		parts = append(parts, "image_encoder")
	case m.Model.Denoiser.Worded():
		parts = parts[:1]
	}
	for _, part := range parts {
		if !machine.Exists(filepath.Join(dir, part)) {
			return exit.Usagef("%s has no folder %s: name the folder of a pipeline that has %s",
				dir, part, strings.Join(parts, ", "))
		}
	}
	c := &m.Cfg.Run.Diffusion
	if c.Autoencoder = filepath.Join(dir, "vae"); len(parts) > 1 {
		c.Text = filepath.Join(dir, "text_encoder")
	}
	c.Image = imageEncoderIn(m, dir)
	return nil
}

// notes are what an export of a policy with a clip does not say, or what its readers do not read.
func notes(e *trained.Exporter) (out []string) {
	d := e.Model.Denoiser
	if d == nil || d.Sight == nil || d.Hosted {
		return nil
	}
	if x, err := robotsOfRun(e.Cfg, d, e.Saved); err == nil { // the export itself says what is wrong
		out = x.allUnlike()
	}
	if d.Clip == nil {
		return out
	}
	if encoders(e.Cfg, d.Worded()) == "" {
		what := "are no folders vae and text_encoder of one pipeline"
		if d.Worded() {
			what = "are no folder vae of a pipeline"
		}
		out = append(out, fmt.Sprintf("config.json does not say by which encoders the policy learnt (%s): they "+
			"%s; it would act by those of %s, so serve it with --encoders", d.EncodersKey, what,
			cmp.Or(d.EncodersHub, wanHub)))
	}
	for _, why := range d.Clip.Foreign {
		out = append(out, "lerobot does not load this policy: "+why)
	}
	return out
}

// pipelineOf is the folder of a pipeline that a policy's config.json names below a key: one beside the
// policy, or another, or one of the hub's cache.
func pipelineOf(m *trained.Trained, name, key string) (string, error) {
	if at := filepath.Join(m.Dir, name); !filepath.IsAbs(name) && machine.Exists(filepath.Join(at, "vae")) {
		return at, nil
	}
	root, err := hf.Resolve(name, os.Getenv)
	if err != nil {
		return "", err
	}
	if machine.Exists(filepath.Join(root, "vae")) {
		return root, nil
	}
	why := hf.Absent(name, os.Getenv)
	if why == "" {
		why = "serve it with --encoders, or set " + key + " to the folder of a pipeline that has vae " +
			"and text_encoder, beside the policy or by its whole path"
	}
	return "", exit.Usagef("%s reads views and captions by the encoders of %s (%s in its config.json), which has "+
		"no vae here; %s", m.Dir, name, key, why)
}

// wanHub has the encoders that files of lerobot's mean where they do not say.
const wanHub = "Wan-AI/Wan2.2-TI2V-5B-Diffusers"

// imageEncoder is the whole path of the folder of a run's encoder of images, "" for none.
func imageEncoder(cfg *configs.Config) string {
	dir := fit.Beside(cfg, cfg.Run.Diffusion.Image, "image_encoder")
	if dir == "" {
		return ""
	}
	if whole, err := filepath.Abs(dir); err == nil {
		return whole
	}
	return dir
}

// imageEncoderIn is the encoder of images in a pipeline's folder, for a policy that reads features of what it sees.
func imageEncoderIn(m *trained.Trained, root string) string {
	if m.Model.Denoiser.Images == 0 {
		return m.Cfg.Run.Diffusion.Image
	}
	return filepath.Join(root, "image_encoder")
}

// imageEncoderOf is the folder of the encoder of images that a policy's config.json names: one beside the
// policy, or another.
func imageEncoderOf(m *trained.Trained, name string) (string, error) {
	for _, at := range []string{filepath.Join(m.Dir, name), name} {
		if machine.Exists(filepath.Join(at, "config.json")) && (at == name || !filepath.IsAbs(name)) {
			return at, nil
		}
	}
	key := m.Model.Denoiser.ImageKey
	return "", exit.Usagef("%s reads what it sees by the encoder of images %q (%s in its config.json), "+
		"which is not here; serve it with --encoders, or set %s to the encoder's folder, beside the policy "+
		"or by its whole path", m.Dir, name, key, key)
}
