package fidelity

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/latent"
	"github.com/lfactor/lfactor/stages/texts"
	"github.com/lfactor/lfactor/topology/cost"
)

// DenoiserLayout is one way to place the frozen encoders of a model of diffusion on some devices. Times are
// seconds of a step; shares are of all devices' time.
type DenoiserLayout struct {
	Devices  int     `json:"devices"`
	Layout   string  `json:"layout"`
	Encoding int     `json:"devices_that_encode"`
	Step     float64 `json:"step"`
	Samples  float64 `json:"samples_per_second"`
	VAE      float64 `json:"share_vae"`
	Text     float64 `json:"share_text"`
	Denoiser float64 `json:"share_denoiser"`
	Rest     float64 `json:"share_waiting"`
	VAEEach  float64 `json:"vae_seconds_a_sample"`
	TextEach float64 `json:"text_seconds_a_sample"`
	Peak     int64   `json:"peak"`
}

// The layouts: latents and states kept by their content, so that after the first epoch nothing is encoded;
// each replica's devices encode its samples, every device another one, before they train on them; and devices
// of their own that encode ahead.
const (
	Cached        = "cached"
	Live          = "live"
	Disaggregated = "disaggregated"
)

// DenoiserAtScale simulates steps of a run of diffusion on so many devices of a machine with its encoders in
// each layout. The replicas are as many as the devices hold; the batch stays.
func DenoiserAtScale(cfg *configs.Config, cluster string, devices []int) (out []DenoiserLayout, err error) {
	m, err := rehearsal.Machine(cluster)
	if err != nil {
		return nil, err
	}
	if !cfg.Model.Denoises() { //lfvet:kind the verb is for models of diffusion alone
		return nil, exit.Usagef("%s is no model of diffusion", cfg.Model.ModelType)
	}
	vae, text, err := encoding(cfg, m)
	if err != nil {
		return nil, err
	}
	for _, n := range devices {
		some, err := denoiserOn(cfg, m, n, vae, text)
		if err != nil {
			return nil, fmt.Errorf("%d devices: %w", n, err)
		}
		out = append(out, some...)
	}
	return out, nil
}

// encoding is what one sample takes a device of the machine to encode: its latents and the states of its caption.
func encoding(cfg *configs.Config, m *cost.Machine) (vae, text float64, err error) {
	d := &cfg.Run.Diffusion
	o := grad.Options{DType: tensor.BF16, NoGrad: true, Device: m.Kernels()}
	if dir := fit.Beside(cfg, d.Autoencoder, "vae"); dir != "" && dir != "pixels" {
		c, err := latent.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil {
			return 0, 0, cfg.Fault("diffusion.autoencoder", err.Error(), "")
		}
		size, err := configs.ParseSize(d.Sizes[0])
		if err != nil {
			return 0, 0, err
		}
		a := c.Model()
		shape := []int{1, size[1], size[2], a.In}
		if a.Frames > 0 {
			shape = []int{1, size[0], size[1], size[2], a.In}
		}
		r := &block.Rec{T: grad.NewTape(o)}
		r.T.Output("moments", a.Encode(r, "", r.T.Data("pixels", tensor.F32, shape...)))
		vae = seconds(r.T.Finish(), m)
	}
	if dir := fit.TextDir(cfg); dir != "" && dir != "none" {
		e, err := texts.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil {
			return 0, 0, cfg.Fault("diffusion.text_encoder", err.Error(), "")
		}
		model, err := fit.Build(cfg)
		if err != nil {
			return 0, 0, err
		}
		rows := max(model.Denoiser.TextRows, 1)
		if model.Denoiser.TextRows == 0 {
			rows = 256 // of a long caption, where nothing pads it
		}
		text = seconds(e.Record(o, rows, 1, fit.TextTake(model.Denoiser)), m)
	}
	return vae, text, nil
}

// seconds is what a forward takes a device of a machine.
func seconds(tr *grad.Trace, m *cost.Machine) (t float64) {
	for _, s := range tr.F {
		t += m.SegmentOn(0, s.Cost.Flops, s.Cost.Bytes, s.Cost.Calls)
	}
	return t
}

// denoiserOn is the three layouts on so many devices.
func denoiserOn(cfg *configs.Config, m *cost.Machine, n int, vae, text float64) ([]DenoiserLayout, error) {
	all, err := denoiserStep(cfg, m, n)
	if err != nil {
		return nil, err
	}
	p := &cfg.Run.Plan
	each := vae + text // of a sample
	of := func(layout string, encode int, step, busy float64, d denoised) DenoiserLayout {
		batch := float64(d.batch)
		l := DenoiserLayout{Devices: n, Layout: layout, Encoding: encode, Step: step, Samples: batch / step,
			Denoiser: busy / step, VAEEach: vae, TextEach: text, Peak: d.peak}
		if layout != Cached {
			l.VAE, l.Text = batch*vae/(float64(n)*step), batch*text/(float64(n)*step)
		}
		l.Rest = max(0, 1-l.VAE-l.Text-l.Denoiser)
		return l
	}
	group := p.CP * p.TP * p.PP
	out := []DenoiserLayout{of(Cached, 0, all.step, all.step, all)}
	// of a replica's samples each device encodes the same number, or one less
	own := all.batch * group / n
	live := all.step + float64((own+group-1)/group)*each
	out = append(out, of(Live, 0, live, all.step, all))
	for encode := group; encode < n; encode += group {
		d, err := denoiserStep(cfg, m, n-encode)
		if err != nil {
			return nil, err
		}
		if ready := float64(d.batch) * each / float64(encode); ready <= d.step || encode+group >= n { // they keep up
			return append(out, of(Disaggregated, encode, max(d.step, ready),
				d.step*float64(n-encode)/float64(n), d)), nil
		}
	}
	return out, nil
}

// denoised is a step of a denoiser alone: seconds, samples and bytes at the peak.
type denoised struct {
	step  float64
	batch int
	peak  int64
}

// denoiserStep simulates a step of the denoiser alone on so many devices. A batch that does not divide among
// their replicas is cut to one that does.
func denoiserStep(cfg *configs.Config, m *cost.Machine, n int) (d denoised, err error) {
	c := *cfg
	p := &c.Run.Plan
	group := p.CP * p.TP * p.PP
	t := &c.Run.Train
	if n%group != 0 || t.GlobalBatch < n/group*t.MicroBatch {
		return d, exit.Usagef("%d devices are no replicas of %d with a microbatch of %d each in a batch of %d", n,
			group, t.MicroBatch, t.GlobalBatch)
	}
	p.DP = n / group
	t.GlobalBatch -= t.GlobalBatch % (p.DP * t.MicroBatch)
	r, err := rehearsal.New(&c, rehearsal.Options{Machine: m})
	if err != nil {
		return d, err
	}
	res := r.Run(sim.Options{Whole: true})
	if res.Failed != "" || res.Stall != nil {
		return d, fmt.Errorf("the simulated run ended badly: %s", rehearsal.Why(res))
	}
	return denoised{res.Steps[len(res.Steps)-1].Time / 1e9, t.GlobalBatch, slices.Max(res.Peak)}, nil
}
