package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
)

var _ = add(func() *cobra.Command {
	c := &cobra.Command{Use: "sample MODEL", Short: "Continue a prompt with a trained model",
		Long: "MODEL is a checkpoint directory of a run, or a Hugging Face directory.", Args: cobra.ExactArgs(1)}
	f := c.Flags()
	prompt := f.String("prompt", "", "text to continue")
	var p sample.Params
	f.IntVar(&p.Max, "max", 64, "new tokens at most")
	f.Float64Var(&p.Temperature, "temperature", 0.8, "0 takes the likeliest token always")
	f.Float64Var(&p.TopP, "top-p", 0.95, "least probability of the set of tokens that are drawn from")
	f.IntVar(&p.TopK, "top-k", 0, "draw from so many of the likeliest tokens; 0 from all")
	f.Uint64Var(&p.Seed, "seed", 0, "seed of the draws")
	greedy := f.Bool("greedy", false, "the same as --temperature 0")
	tokenizer := f.String("tokenizer", "", "directory with tokenizer.json, and with the chat template and preprocessor_config.json for --image, if MODEL has none")
	picture := f.String("image", "", "picture to ask the prompt about, for models that see")
	c.RunE = func(c *cobra.Command, args []string) error {
		if p.Max < 0 || p.Temperature < 0 || p.TopP < 0 || p.TopP > 1 || p.TopK < 0 {
			return usage("sample: --max, --temperature and --top-k are not negative, --top-p lies between 0 and 1")
		}
		if *greedy {
			p.Temperature = 0
		}
		if *picture != "" {
			return askCommand(args[0], *tokenizer, *picture, *prompt, p)
		}
		return sampleCommand(args[0], *tokenizer, *prompt, p)
	}
	return c
})

func sampleCommand(path, tokenizer, prompt string, p sample.Params) error {
	m, err := openModel(path, tokenizer)
	if err != nil {
		return err
	}
	defer m.close()
	fmt.Print(prompt)
	if err := m.generate(prompt, p, os.Stdout); err != nil {
		return err
	}
	fmt.Println()
	return nil
}

// continuation writes what the newest checkpoint of a directory makes of a prompt.
func continuation(dir, prompt string, p sample.Params, w io.Writer) error {
	m, err := openModel(dir, "")
	if err != nil {
		return err
	}
	defer m.close()
	return m.generate(prompt, p, w)
}

// generate writes a continuation as it is drawn.
func (m *trained) generate(prompt string, p sample.Params, w io.Writer) error {
	b := cpu.New(0)
	defer b.Close()
	gen, err := sample.New(m.model, m.lora, tensor.F32, b, tensor.NewPool("sample", 0), m.fill)
	if err != nil {
		return err
	}
	defer gen.Close()
	p.Stop = append(p.Stop, m.stop...)
	stream := m.tok.NewStream(true)
	if err := gen.Generate(m.tok.Encode(prompt, true), p, func(id int32) bool { fmt.Fprint(w, stream.Push(id)); return true }); err != nil {
		return err
	}
	fmt.Fprint(w, stream.Flush())
	return nil
}

// trained is a model with weights, from a run's checkpoint or a Hugging Face directory.
type trained struct {
	cfg   *configs.Config // of the run, nil for a Hugging Face directory
	model *family.Model
	lora  *block.Lora
	tok   *token.Tokenizer
	stop  []int32
	fill  func(p *grad.Param, g family.Region, dst []float32) error
	saved *checkpoint.Reader
	close func()
}

func openModel(path, tokenizer string) (*trained, error) {
	if fileExists(filepath.Join(path, "latest")) {
		latest, err := checkpoint.Latest(path)
		if err != nil {
			return nil, err
		}
		path = latest
	}
	if fileExists(filepath.Join(path, "manifest.json")) {
		return openOwn(path, tokenizer)
	}
	return openHF(path, tokenizer)
}

func openOwn(path, tokenizer string) (*trained, error) {
	saved, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	t := &trained{saved: saved, close: func() { _ = saved.Close() }}
	if t.cfg, err = savedConfig(saved); err != nil {
		return nil, err
	}
	if t.tok, err = tokenizerAt(tokenizer, t.cfg.Run.Data.Tokenizer, t.cfg.Run.Model.Path); err != nil {
		return nil, err
	}
	if err = t.cfg.CheckVocab(t.tok.VocabSize()); err != nil {
		return nil, err
	}
	if t.model, err = family.Build(t.cfg.Model, t.cfg.Run.Data.SeqLen); err != nil {
		return nil, err
	}
	t.lora = lora(t.cfg)
	t.model.Spec.MTP = 0 // its layers serve training
	from := host.FromCheckpoint(saved, false)
	t.fill = func(p *grad.Param, g family.Region, dst []float32) error {
		_, err := from("param", p, g, dst)
		return err
	}
	t.stops(t.cfg.Model)
	return t, nil
}

func openHF(path, tokenizer string) (*trained, error) {
	c, err := configs.ReadModel(path)
	if err != nil {
		return nil, err
	}
	t := &trained{}
	if t.tok, err = tokenizerAt(tokenizer, path); err != nil {
		return nil, err
	}
	if t.model, err = family.Build(c, 0); err != nil {
		return nil, err
	}
	src, err := checkpoint.OpenDir(path)
	if err != nil {
		return nil, err
	}
	t.close = func() { _ = src.Close() }
	w, err := t.model.OpenWeights(src, path)
	if err != nil {
		return nil, err
	}
	t.fill = func(p *grad.Param, g family.Region, dst []float32) error { _, err := w.Read(p, g, dst); return err }
	t.model.Spec.MTP = 0
	t.stops(c)
	return t, nil
}

func (t *trained) stops(c configs.Model) {
	for _, id := range c.EOS {
		t.stop = append(t.stop, int32(id))
	}
}

// tokenizerAt opens the tokenizer of the first directory that is given.
func tokenizerAt(dirs ...string) (*token.Tokenizer, error) {
	i := slices.IndexFunc(dirs, func(d string) bool { return d != "" })
	if i < 0 {
		return nil, usage("no tokenizer: name its directory with --tokenizer")
	}
	t, _, err := token.LoadDir(dirs[i])
	return t, err
}

// savedConfig is the configuration that a checkpoint was made with.
func savedConfig(saved *checkpoint.Reader) (*configs.Config, error) {
	var flat map[string]string
	if err := saved.Section("config", &flat); err != nil {
		return nil, err
	}
	var args []string
	for k, v := range flat {
		if k == "model.overrides.parameters" && v == "0" { // a claim that the model does not make
			continue
		}
		args = append(args, k+"="+v)
	}
	slices.Sort(args)
	cfg, err := configs.Load(configs.Request{Args: args})
	if err != nil {
		return nil, fmt.Errorf("%s: its configuration: %w", saved.Path(), err)
	}
	return cfg, nil
}

func ckptConvertCommand() *cobra.Command {
	c := &cobra.Command{Use: "convert CKPT DST", Short: "Export a run's checkpoint as a Hugging Face directory (or its adapters as PEFT's)", Args: cobra.ExactArgs(2)}
	c.RunE = func(_ *cobra.Command, args []string) error {
		t, err := openModel(args[0], "")
		if err != nil {
			return err
		}
		defer t.close()
		if t.saved == nil {
			return usage("%s is a Hugging Face directory already; `lfactor train` with train.steps=0 makes a checkpoint of one", args[0])
		}
		t.model.Spec.MTP = t.cfg.Model.MTPLayers
		e := exporter{cfg: t.cfg, model: t.model, lora: t.lora, saved: t.saved, side: sideDir(t.cfg)}
		if err := e.write(args[1]); err != nil {
			return fmt.Errorf("export to %s: %w", args[1], err)
		}
		fmt.Fprintln(os.Stderr, "wrote", args[1])
		return nil
	}
	return c
}
