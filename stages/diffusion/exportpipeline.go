package diffusion

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/stages/texts"
	"github.com/lfactor/lfactor/stages/trained"
)

// The task of models of diffusion, and of their autoencoders.
var _ = trained.Register(trained.Task{Name: "diffusion", Library: "diffusers",
	Owns: func(m *family.Model) bool { return m.Denoiser != nil && m.Denoiser.Sight == nil && !m.Denoiser.Hosted },
	Mute: "the model draws and does not speak: name a file for what it draws with --image-out",
	Export: func(e *trained.Exporter, dst string) error {
		if err := pipeline(e, dst); err != nil || e.Lora == nil || e.Cfg.Run.LoRA.Merge {
			return err
		}
		return ExportAdapters(e, dst)
	}, Adapters: ExportAdapters, Shows: shows})

// pipeline writes a model of diffusion as diffusers keeps it: transformer or unet with the denoiser, or vae with an
// autoencoder, scheduler with what it was trained under, and text_encoder where that has learnt. Folders that the run
// did not change, an autoencoder's among them, stay where they are: a pipeline of diffusers takes them from there.
func pipeline(e *trained.Exporter, dst string) error {
	core := e.Model.Core()
	if err := denoiser(e, core, filepath.Join(dst, folder(e, core.Denoiser))); err != nil {
		return err
	}
	if e.Model.Denoiser.Takes != nil {
		return nil
	}
	if e.Model.Denoiser.Halves != nil {
		if err := denoiser(second(e), core, filepath.Join(dst, family.LowNoise)); err != nil {
			return err
		}
	}
	s, err := fit.Scheduler(e.Cfg)
	if err != nil {
		return err
	}
	dir := filepath.Join(dst, "scheduler")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "scheduler_config.json"), noise.Marshal(s), 0o644); err != nil {
		return err
	}
	if e.Model.Denoiser.Live == nil || !e.Cfg.Run.Diffusion.TrainText {
		return nil
	}
	return textEncoder(e, filepath.Join(dst, "text_encoder"))
}

// second exports the other one of two models in one.
func second(e *trained.Exporter) *trained.Exporter {
	low := *e
	low.Prefix = family.LowNoise + "."
	return &low
}

// ExportAdapters writes the adapters alone in the format of diffusers' pipelines, those of the second of two
// models in a folder of their own.
func ExportAdapters(e *trained.Exporter, dst string) error {
	if err := pipelineAdapters(e, dst); err != nil || e.Model.Denoiser.Halves == nil {
		return err
	}
	return pipelineAdapters(second(e), filepath.Join(dst, family.LowNoise))
}

// pipelineAdapters writes the adapters of the model that is exported, of two.
func pipelineAdapters(e *trained.Exporter, dst string) error {
	lora, prefix := half(e), e.Model.Denoiser.Folder()+"."
	if len(lora.Targets) == 0 {
		return nil
	}
	create := func(dir string, c checkpoint.AdapterConfig, all []checkpoint.Info) (checkpoint.Sink, error) {
		return checkpoint.NewPipelineAdapterWriter(dir, prefix, c, all)
	}
	return e.Adapters(dst, trained.AdapterForm{Model: e.Model.Core(), Lora: lora, Prefix: prefix, Create: create})
}

// half are the adapters of the model that is exported, of two, by the names of its own layers.
func half(e *trained.Exporter) *block.Lora {
	if e.Model.Denoiser.Halves == nil {
		return e.Lora
	}
	l := *e.Lora
	l.Targets = nil
	for _, p := range e.Model.Adapters(e.Lora) {
		base, down := strings.CutSuffix(p.Name, ".lora_A.weight")
		rest, low := strings.CutPrefix(base, family.LowNoise+".")
		if down && low == (e.Prefix != "") {
			l.Targets = append(l.Targets, rest)
		}
	}
	return &l
}

// denoiser writes the weights of a model and its config.json.
func denoiser(e *trained.Exporter, core *family.Model, dir string) error {
	sink, err := checkpoint.NewWriterOf(checkpoint.DiffusersStem, dir, core.HFTensors(e.DType), trained.ShardBytes)
	if err != nil {
		return err
	}
	if err := core.Export(sink, e.DType, e.Value); err != nil {
		_ = sink.Abort() // the first error is the one to report
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), e.Cfg.Model.HFConfig(trained.LongName(e.DType(""))), 0o644)
}

// folder is the denoiser's in a pipeline's: that which it came from, if it is one of two experts.
func folder(e *trained.Exporter, d *family.Denoiser) string {
	dir := filepath.Clean(e.Cfg.Run.Model.Path)
	if _, low, _, ok := hf.Experts(hf.PipelineDir(dir)); ok && dir == low {
		return filepath.Base(low)
	}
	return d.Folder()
}

// textEncoder writes an encoder of captions that has learnt with the denoiser, with its tokenizer.
func textEncoder(e *trained.Exporter, dst string) error {
	src := fit.TextDir(e.Cfg)
	m, err := texts.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		return err
	}
	if _, err := checkpoint.CopySideFiles(src, dst); err != nil {
		return err
	}
	d, err := tensor.ParseDType(e.DType(""))
	if err != nil {
		return err
	}
	return m.Write(dst, d, func(p *grad.Param, v []float32) error {
		return e.Read(texts.In(texts.Component, p.Name), p.Shape, v)
	})
}
