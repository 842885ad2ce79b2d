package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/autoencoders"
	"github.com/lfactor/lfactor/stages/features"
	"github.com/lfactor/lfactor/stages/noise"
)

// Autoencodes reports whether the model of a configuration is an autoencoder.
func Autoencodes(c *configs.Config) bool { return c.Model.Has("autoencoder") }

// autoencoderReads are the keys of the section diffusion that autoencoders read.
var autoencoderReads = []string{"sizes", "fps", "upscale", "posterior", "kl_weight", "loss", "huber_border",
	"autoencoder", "text_encoder", "perceptual", "perceptual_weight"}

// autoencoder holds the section diffusion to an autoencoder, which reads pictures alone.
func (r rules) autoencoder() {
	const section = "diffusion."
	d := &r.c.Run.Diffusion
	for _, k := range configs.Keys() {
		name, of := strings.CutPrefix(k.Name, section)
		if of && !slices.Contains(autoencoderReads, name) && !r.c.Usual(k.Name) {
			r.at(k.Name, "an autoencoder does not read it", "remove it")
		}
	}
	if d.Autoencoder != "" && d.Autoencoder != "pixels" {
		r.at(section+"autoencoder", "the model is an autoencoder itself, which reads pixels", "remove it")
	}
	if d.Text != "" && d.Text != "none" {
		r.at(section+"text_encoder", "an autoencoder reads no captions", "remove it")
	}
	if d.Loss != "huber" && !r.c.Usual(section+"huber_border") {
		r.at(section+"huber_border", "is not read: only with diffusion.loss: huber", "remove it")
	}
	r.perceptual()
	if r.c.Run.Plan.TP > 1 {
		r.at("plan.tp", "an autoencoder computes every layer whole, so that nothing is shared out",
			"use plan.dp or plan.pp, or plan.cp, which shares out lines")
	}
	if len(d.Sizes) == 0 {
		return
	}
	for _, text := range d.Sizes {
		size, err := configs.ParseSize(text)
		if err != nil {
			return // reported already
		}
		if err := r.m.Denoiser.Takes(size); err != nil {
			r.at(section+"sizes", text+": "+err.Error(), "")
		}
	}
}

// perceptual holds the network of diffusion.perceptual to what it can compare.
func (r rules) perceptual() {
	const key = "diffusion.perceptual"
	d := &r.c.Run.Diffusion
	if d.Look == "" {
		if !r.c.Usual(key + "_weight") {
			r.at(key+"_weight", "is not read: only with "+key, "remove it")
		}
		return
	}
	n, err := features.Read(d.Look)
	switch {
	case err != nil:
		r.at(key, err.Error(), "")
		return
	case n.Widths == nil:
		r.at(key, n.Class+" describes pictures as wholes alone", "take weights of VGG")
		return
	case r.m.Denoiser.Channels != 3:
		r.at(key, fmt.Sprintf("it sees three colours, and the autoencoder has %d channels", r.m.Denoiser.Channels),
			"remove it")
	}
	for _, text := range d.Sizes {
		size, err := configs.ParseSize(text)
		if least := n.Least(); err == nil && (size[1] < least || size[2] < least) {
			r.at("diffusion.sizes", fmt.Sprintf("%s: %s sees nothing of less than %d pixels", text, key, least), "")
		}
	}
}

// Perceptual is the component of the network that compares pictures, frozen. The names of its parameters begin with it.
const Perceptual = "perceptual"

// look adds the network of diffusion.perceptual to an autoencoder: its weights are a part of the model that
// is neither trained nor exported.
func look(c *configs.Config, m *family.Model) error {
	d := &c.Run.Diffusion
	if d.Look == "" || d.LookBy == 0 {
		return nil
	}
	n, err := features.Read(d.Look)
	if err != nil {
		return c.Fault("diffusion.perceptual", err.Error(), "")
	}
	m.Denoiser.Process.Look, m.Denoiser.Process.LookBy = n, d.LookBy
	m.Denoiser.Process.LookName = Perceptual + "."
	m.Blocks[len(m.Blocks)-1].Weight += 2 * n.Work / 1000
	m.Parts = append(m.Parts, family.Part{Component: Perceptual, Prefix: Perceptual + "."})
	own := m.Source
	m.Source = func(name string) family.Source {
		if rest, ok := strings.CutPrefix(name, Perceptual+"."); ok {
			return family.Source{Name: rest}
		}
		return own(name)
	}
	m.Alone = map[string][]func(string) family.Source{Perceptual: {m.Source}, family.Foundation: {own}}
	return nil
}

// PartFiles are the weights of a part of a model, by the key that names them: "" for none that lie by themselves.
func PartFiles(c *configs.Config, component string) (key, path string) {
	switch component {
	case Perceptual:
		return "diffusion.perceptual", c.Run.Diffusion.Look
	case autoencoders.Component:
		return "diffusion.autoencoder", LatentDir(c)
	case family.LowNoise: // a folder of one model begins both
		path := c.Run.Model.Path
		if _, low, _, ok := hf.Experts(hf.PipelineDir(path)); ok {
			path = low
		}
		if c.Run.Model.Init == "random" {
			path = ""
		}
		return "model.path", path
	}
	return "diffusion.text_encoder", TextDir(c)
}

// reconstruction is what an autoencoder is trained by: pixels that come back are compared with those that were encoded.
func reconstruction(d *configs.Diffusion) family.Process {
	target, ok := noise.Lookup("sample")
	if !ok {
		panic("fit: no target sample")
	}
	p := family.Process{Target: target, Loss: losses[d.Loss], Border: d.Border, Mode: d.Posterior == "mode", KL: d.KL}
	if len(d.Sizes) > 0 {
		p.Size, _ = configs.ParseSize(d.Sizes[0]) // a wrong one is reported by its section
	}
	return p
}
