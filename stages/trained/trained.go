// Package trained is trained models: opened from checkpoints and Hugging Face directories, asked, and exported.
package trained

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels"
	_ "github.com/lfactor/lfactor/kernels/backends" // whoever asks a model has the processor
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/gguf"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/topology/machine"
)

// Trained is a model with weights, from a run's checkpoint or a Hugging Face directory.
type Trained struct {
	Cfg             *configs.Config // of the run, nil for a Hugging Face directory
	Model           *family.Model
	Lora            *block.Lora
	Tokenizer       *token.Tokenizer
	TokenizerConfig *token.Config // tokenizer_config.json
	Notes           []string      // what of the model's folder is not read
	stop            []int32
	usual           map[string]float64 // how answers are drawn, by keys of generation_config.json
	Fill            func(p *grad.Param, g family.Region, dst []float32) error
	Dir             string
	Saved           *checkpoint.Reader
	// ActsBy is the configuration of a task in a vision-language model's folder, as of one whose model writes
	// a robot's actions; nil for another folder.
	ActsBy *configs.Config
	Close  func()
	// AsLearnt says that a probe rounds weights as train.qat did
	AsLearnt bool
}

// Option says how a model is opened.
type Option func(*opening)

type opening struct{ average, bare, further bool }

// Average opens the exponential moving average of the weights that a run kept beside them (optimizer.ema).
func Average(on bool) Option { return func(o *opening) { o.average = on } }

// Bare opens a run's checkpoint without a tokenizer: it has logits, and no text.
func Bare(o *opening) { o.bare = true }

// Further opens a model with its layer for further tokens, which proposes them where answers are drawn
// (sample.EngineOptions); one without is refused.
func Further(o *opening) { o.further = true }

// Open reads the checkpoint directory of a run, a Hugging Face directory or a GGUF file; tokenizer names
// another directory for the tokenizer, "" for none.
func Open(path, tokenizer string, options ...Option) (*Trained, error) {
	var how opening
	for _, o := range options {
		o(&how)
	}
	path, err := hf.Resolve(path, os.Getenv)
	if err != nil {
		return nil, err
	}
	if machine.Exists(filepath.Join(path, "latest")) {
		latest, err := checkpoint.Latest(path)
		if err != nil {
			return nil, err
		}
		path = latest
	}
	if machine.Exists(filepath.Join(path, "manifest.json")) {
		return openOwn(path, tokenizer, how)
	}
	if vacant(path) {
		if hint := hf.Absent(path, os.Getenv); hint != "" {
			return nil, exit.Usagef("%s", hint)
		}
		return nil, exit.With(fmt.Errorf("%s: there is no checkpoint and no Hugging Face directory here", path),
			exit.Corrupt)
	}
	if how.average {
		return nil, exit.Usagef("%s has one set of weights: an average is read from the checkpoints of a run that "+
			"keeps one", path)
	}
	if strings.HasSuffix(path, gguf.Ext) {
		return openGGUF(path, tokenizer, how)
	}
	dir := hf.DenoiserDir(path)
	t, err := openHF(dir, tokenizer, how, func() (checkpoint.Source, error) {
		return checkpoint.OpenDir(dir)
	})
	if partial := hf.Partial(path); err != nil && partial != "" {
		err = fmt.Errorf("%w%s", err, partial)
	}
	return t, err
}

// vacant says that nothing is at a path, or a folder that holds nothing.
func vacant(path string) bool {
	if !machine.Exists(path) {
		return true
	}
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}

// openOwn opens a checkpoint that this program saved. The configuration saved in it says how to
// build the model, and its tokenizer must fit the vocabulary.
func openOwn(path, tokenizer string, how opening) (*Trained, error) {
	saved, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	t := &Trained{Saved: saved, Close: func() { _ = saved.Close() }} // it is only read
	if t.Cfg, err = SavedConfig(saved); err != nil {
		return nil, err
	}
	if how.average || optim.Averages(t.Cfg.Run.Optimizer.Kind) {
		if err := saved.Average(optim.AverageState); err != nil {
			return nil, err
		}
	}
	//lfvet:kind before a model is built its configuration alone tells that it has no tokenizer
	if !t.Cfg.Model.Denoises() && !how.bare {
		if t.Tokenizer, t.TokenizerConfig, err = TokenizerAt(tokenizer, t.Cfg.Run.Data.Tokenizer,
			t.Cfg.Run.Model.Path); err != nil {
			return nil, err
		}
		if err = t.Cfg.CheckVocab(t.Tokenizer.VocabSize()); err != nil {
			return nil, err
		}
	}
	if t.Model, err = fit.Build(t.Cfg); err != nil {
		return nil, err
	}
	t.Lora = fit.Lora(t.Cfg)
	if err := t.furtherOr(how, saved.Kind("param")); err != nil {
		return nil, err
	}
	from := family.FromCheckpoint(saved, false)
	t.Fill = func(p *grad.Param, g family.Region, dst []float32) error {
		_, err := from("param", p, g, dst)
		return err
	}
	if dir := t.Cfg.Run.Model.Path; dir != "" {
		err = t.generation(dir)
	}
	t.stops(t.Cfg.Model)
	return t, err
}

// openGGUF opens a GGUF file. Configuration and tokenizer are made of it in a folder that is there for so long.
func openGGUF(path, tokenizer string, how opening) (*Trained, error) {
	m, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lfactor-gguf-")
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	defer os.RemoveAll(dir)
	if err := m.Sides(dir, ""); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	t, err := openHF(dir, tokenizer, how, func() (checkpoint.Source, error) { return m, nil })
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return t, nil
}

// openHF opens a model in the form of Hugging Face, whose weights are those of a source. Layers that predict
// further tokens are dropped, unless they are wanted.
func openHF(path, tokenizer string, how opening, weights func() (checkpoint.Source, error)) (*Trained, error) {
	c, err := configs.ReadModel(path)
	if err != nil {
		return nil, err
	}
	if how.further && c.MTPLayers == 0 {
		c.MTPLayers = 1
	}
	t := &Trained{Dir: path}
	if c.Denoises() { //lfvet:kind before a model is built its configuration alone tells that it has no tokenizer
		if t.Cfg, err = configs.ForModel(path); err != nil {
			return nil, err
		}
		if tokenizer != "" {
			t.Cfg.Run.Data.Tokenizer = tokenizer
		}
		t.Model, err = fit.Build(t.Cfg)
	} else if t.Tokenizer, t.TokenizerConfig, err = TokenizerAt(tokenizer, path); err == nil {
		if t.ActsBy, err = settings(path, tokenizer); err == nil && t.ActsBy != nil {
			t.Model, err = fit.Build(t.ActsBy)
		} else if err == nil {
			t.Model, err = build(c)
		}
		if err == nil {
			aimed(t.Model, path)
		}
	}
	if err != nil {
		return nil, err
	}
	src, err := weights()
	if err != nil {
		return nil, err
	}
	if err := t.reads(c, path, src, how); err != nil {
		return nil, err
	}
	return t, nil
}

// reads takes the weights from a source under the names of Hugging Face's files, which Close closes.
func (t *Trained) reads(c configs.Model, path string, src checkpoint.Source, how opening) error {
	t.Close = func() { _ = src.Close() } // it is only read
	if err := t.furtherOr(how, src); err != nil {
		return err
	}
	w, err := t.Model.OpenWeights(src, path)
	if err != nil {
		return err
	}
	t.Fill = func(p *grad.Param, g family.Region, dst []float32) error {
		_, err := w.Read(p, g, dst)
		return err
	}
	t.stops(c)
	return t.generation(path)
}

// furtherOr drops layers for further tokens, unless they are wanted: then the source is to have their weights.
func (t *Trained) furtherOr(how opening, src checkpoint.Source) error {
	if !how.further {
		t.Model.DropMTP()
		return nil
	}
	have := map[string]bool{}
	for _, x := range src.Tensors() {
		have[x.Name] = true
	}
	for _, p := range t.Model.Params(t.Lora) {
		if !strings.HasPrefix(p.Name, family.FurtherName) {
			continue
		}
		for _, name := range t.Model.Source(p.Name).Names(p) {
			if !have[name] && !have[p.Name] {
				return exit.Usagef("the model has no layer for further tokens: %s is missing", name)
			}
		}
		return nil
	}
	return exit.Usagef("the model has no layer for further tokens")
}

// stops notes the tokens that end a text.
func (t *Trained) stops(c configs.Model) {
	for _, id := range c.EOS {
		t.stop = append(t.stop, int32(id))
	}
}

// Backend opens the device that the run was configured for, or the processor for a model without a run,
// with all its threads.
func (m *Trained) Backend() (kernels.Backend, error) {
	if m.Cfg != nil {
		return kernels.Open(m.Cfg.Run.Device, kernels.Options{Strict: m.Cfg.Run.Strict})
	}
	return kernels.Open(kernels.CPU, kernels.Options{})
}

// Generator is a generator of the model on a device, in a precision.
func (m *Trained) Generator(b kernels.Backend, d tensor.DType) (*sample.Generator, error) {
	return sample.New(m.Model, m.Lora, d, b, tensor.NewPool("sample", 0), m.Fill)
}

// Print changes with the weights, as far as files tell without reading them all.
func (m *Trained) Print() (string, error) {
	if m.Saved != nil {
		return fmt.Sprint(m.Saved.Path(), m.Saved.Step()), nil
	}
	return FolderPrint(m.Dir)
}

// Speaks refuses models that have no words.
func (m *Trained) Speaks() error {
	if t := taskOf(m.Model); t != nil {
		return exit.Usagef("%s", t.Mute)
	}
	return nil
}

// Generate writes a continuation as it is drawn.
func (m *Trained) Generate(prompt string, p sample.Params, w io.Writer) (Rate, error) {
	if err := m.Speaks(); err != nil {
		return Rate{}, err
	}
	b, err := m.Backend()
	if err != nil {
		return Rate{}, err
	}
	defer kernels.Close(b)
	gen, err := sample.New(m.Model, m.Lora, tensor.F32, b, tensor.NewPool("sample", 0), m.Fill)
	if err != nil {
		return Rate{}, err
	}
	defer gen.Close()
	p.Stop = append(p.Stop, m.stop...)
	ids, err := m.Tokenizer.TryEncode(prompt, true)
	if err != nil {
		return Rate{}, err
	}
	return m.write(gen, ids, p, w)
}

// Rate is how long an answer took, without the loading of the model.
type Rate struct {
	Prompt  int     `json:"prompt_tokens"`
	Tokens  int     `json:"tokens"` // drawn
	First   float64 `json:"first_token_seconds"`
	Seconds float64 `json:"seconds"` // in all
}

// write draws tokens behind ids and writes their text as it comes.
func (m *Trained) write(gen *sample.Generator, ids []int32, p sample.Params, w io.Writer) (Rate, error) {
	stream, r, began := m.Tokenizer.NewStream(true), Rate{Prompt: len(ids)}, time.Now()
	err := gen.Generate(ids, p, func(id int32) bool {
		if r.Tokens++; r.Tokens == 1 {
			r.First = time.Since(began).Seconds()
		}
		fmt.Fprint(w, stream.Push(id))
		return true
	})
	fmt.Fprint(w, stream.Flush())
	r.Seconds = time.Since(began).Seconds()
	return r, err
}

// Continuation writes what the newest checkpoint of a directory makes of a prompt.
func Continuation(dir, prompt string, p sample.Params, w io.Writer) error {
	m, err := Open(dir, "")
	if err != nil {
		return err
	}
	defer m.Close()
	_, err = m.Generate(prompt, p, w)
	return err
}

// TokenizerAt opens the tokenizer of the first directory that is given.
func TokenizerAt(dirs ...string) (*token.Tokenizer, *token.Config, error) {
	i := slices.IndexFunc(dirs, func(d string) bool { return d != "" })
	if i < 0 {
		return nil, nil, exit.Usagef("no tokenizer: name its directory with --tokenizer")
	}
	return token.LoadDir(dirs[i])
}

// SavedConfig is the configuration that a checkpoint was made with.
func SavedConfig(saved *checkpoint.Reader) (*configs.Config, error) {
	var flat map[string]string
	if err := saved.Section("config", &flat); err != nil {
		return nil, err
	}
	if convertedTypes(saved) != nil { // no run has made it, and all but the model is as by default
		dir := filepath.Join(filepath.Dir(saved.Path()), ownModel)
		if !machine.Exists(dir) {
			dir = flat["model.path"]
		}
		cfg, err := configs.ForModel(dir)
		if err == nil && scores(cfg.Model) {
			cfg.Run.Objective.Kind = rewards
		}
		return cfg, err
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
