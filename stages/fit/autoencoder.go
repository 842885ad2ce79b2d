package fit

import (
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// Autoencodes reports whether the model of a configuration is an autoencoder.
func Autoencodes(c *configs.Config) bool { return c.Model.Has("autoencoder") }

// autoencoderReads are the keys of the section diffusion that autoencoders read.
var autoencoderReads = []string{"sizes", "fps", "upscale", "posterior", "kl_weight", "loss", "huber_border",
	"autoencoder", "text_encoder"}

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
	if p := &r.c.Run.Plan; p.CP > 1 || p.TP > 1 {
		r.at("plan.tp", "an autoencoder computes every picture whole, so that nothing is shared out",
			"use plan.dp or plan.pp")
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

// reconstruction is what an autoencoder is trained by: pixels that come back are compared with those that were
// encoded.
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
