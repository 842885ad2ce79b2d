package ckpt

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/calibrate"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/trained"
)

// Of the text that a perplexity is of: tokens of a sequence, at most, and sequences.
const (
	textTokens    = 512
	textSequences = 32
)

// quantizeFlags are those of few bits.
func (o *conversion) quantizeFlags(c *cobra.Command) {
	f := c.Flags()
	names, docs := quant.Quantizers()
	for i, doc := range docs {
		docs[i] = names[i] + ", " + doc
	}
	var by []string
	for _, m := range calibrate.Methods() {
		by = append(by, m.Name+", "+m.Doc)
	}
	f.StringVar(&o.quantize, "quantize", "", "round the weights of linear layers of a Hugging Face directory "+
		"to nearest: "+strings.Join(docs, "; ")+"; or by what a text makes them read, with --calibrate: "+
		strings.Join(by, "; ")+"; or, as qat, of a run with train.qat to the numbers that it has learnt with")
	f.StringVar(&o.calibrate.File, "calibrate", "", "with --quantize gptq or awq: file of text")
	f.IntVar(&o.calibrate.Tokens, "calibrate-tokens", 1<<15,
		"with --calibrate: tokens of the text that are read, in sequences of up to 512")
	f.IntVar(&o.calibrate.Group, "group-size", 0,
		"with --calibrate: columns that share a scale; by default the most of 128, 64 and 32 that all matrices have")
	f.BoolVar(&o.calibrate.ActOrder, "act-order", false, "with --quantize gptq: columns take their turns from the "+
		"one that reads the greatest numbers down, and make up groups so (desc_act)")
	f.StringVar(&o.text, "perplexity", "", "with --quantize: file of text of which the perplexity is printed, before "+
		"and after")
}

// checkQuantize holds the flags of few bits to each other.
func (o *conversion) checkQuantize(c *cobra.Command) error {
	if o.quantize == asTrained {
		return o.checkTrained(c)
	}
	names, _ := quant.Quantizers()
	calibrated := slices.Contains(calibrate.Names(), o.quantize)
	names = append(append(names, calibrate.Names()...), asTrained)
	given := func(flag string) bool { return c.Flags().Changed(flag) }
	switch {
	case o.quantize != "" && (o.to != "hf" || !slices.Contains(names, o.quantize)):
		return exit.Usagef("--quantize %s: want one of %s, and a Hugging Face directory", o.quantize,
			strings.Join(names, ", "))
	case o.text != "" && o.quantize == "":
		return exit.Usagef("--perplexity is for --quantize")
	case calibrated && o.calibrate.File == "":
		return exit.Usagef("--quantize %s rounds by what a text makes the model read: name one by --calibrate",
			o.quantize)
	case !calibrated && (given("calibrate") || given("calibrate-tokens") || given("group-size")):
		return exit.Usagef("--calibrate, --calibrate-tokens and --group-size are for --quantize %s",
			strings.Join(calibrate.Names(), " and "))
	case o.calibrate.ActOrder && !orders(o.quantize):
		return exit.Usagef("--act-order is for --quantize gptq, whose layout says which group a column is of")
	case calibrated && o.calibrate.Tokens < 16:
		return exit.Usagef("--calibrate-tokens %d: want 16 or more", o.calibrate.Tokens)
	case given("group-size") && (o.calibrate.Group < 8 || o.calibrate.Group > 128 ||
		o.calibrate.Group&(o.calibrate.Group-1) != 0):
		return exit.Usagef("--group-size %d: want 8, 16, 32, 64 or 128", o.calibrate.Group)
	}
	return nil
}

// orders reports whether a method takes columns in an order.
func orders(method string) bool {
	return slices.ContainsFunc(calibrate.Methods(), func(m calibrate.Method) bool {
		return m.Name == method && m.Orders
	})
}

// asTrained is --quantize with the numbers of train.qat.
const asTrained = "qat"

// checkTrained takes what a run with train.qat says for --quantize qat.
func (o *conversion) checkTrained(c *cobra.Command) error {
	for _, flag := range []string{"calibrate", "calibrate-tokens", "group-size", "act-order", "dtype"} {
		if c.Flags().Changed(flag) {
			return exit.Usagef("--quantize qat: a run with train.qat says all of it: leave out --%s", flag)
		}
	}
	if o.to != "hf" || foreign(o.src) || folder(o.src) || quant.IsAdapter(o.src) {
		return exit.Usagef("--quantize qat is for the checkpoints of a run with train.qat, and a Hugging Face directory")
	}
	t, err := trained.Open(o.src, "", trained.Bare)
	if err != nil {
		return err
	}
	defer t.Close()
	f, ok := kernels.Fake{}, false
	if t.Cfg != nil {
		f, ok = fit.FakeOf(t.Cfg)
	}
	if !ok {
		return exit.Usagef("--quantize qat: %s is of no run with train.qat: name a form", o.src)
	}
	o.quantize, o.asTrained = quant.FakeForm(f), true
	return nil
}

// rounded makes a Hugging Face directory whose linear layers are in few bits, of one or by way of one.
func (o *conversion) rounded(c *cobra.Command, src, dst string) error {
	if !folder(src) || foreign(src) {
		return o.between(src, dst, func(dir string) error { return o.rounded(c, dir, dst) })
	}
	form := trained.Form{DType: o.dtype, Shard: int64(o.shard), Quantize: o.quantize, Journal: o.journal}
	if o.calibrate.File != "" {
		o.calibrate.Say = func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }
		form.Calibration = &o.calibrate
	}
	if o.text == "" {
		if err := trained.Rewrite(src, "", dst, form); err != nil {
			return err
		}
		return o.misread(c, dst)
	}
	before, err := perplexity(c, src, o.text)
	if err != nil {
		return err
	}
	if err := trained.Rewrite(src, "", dst, form); err != nil {
		return err
	}
	after, err := perplexity(c, dst, o.text)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "perplexity %.4f before, %.4f after (%+.2f %%)\n", before, after, 100*(after/before-1))
	return o.misread(c, dst)
}

// misread says which library does not read what was written: transformers makes experts of NVFP4 without the scale of
// the whole matrix (5.24, integrations/compressed_tensors.py), so that they are thousands of times too large.
func (o *conversion) misread(c *cobra.Command, dst string) error {
	files, err := checkpoint.OpenDir(dst)
	if err != nil {
		return err
	}
	defer files.Close()
	if slices.ContainsFunc(files.Tensors(), func(t checkpoint.Info) bool {
		return strings.Contains(t.Name, ".experts.") && strings.HasSuffix(t.Name, ".weight_global_scale")
	}) {
		fmt.Fprintf(c.ErrOrStderr(), "note: %s is read wrongly by transformers 5.24, which leaves out the second scale of "+
			"experts in NVFP4; vLLM and lfactor read it; int4, int8 and fp8 are read by all\n", dst)
	}
	return nil
}

// perplexity is that of a model of the beginning of a text.
func perplexity(c *cobra.Command, dir, text string) (float64, error) {
	m, err := configs.ReadModel(dir)
	if err != nil {
		return 0, err
	}
	args := []string{"model.path=" + dir, "data.kind=text", "data.paths=[" + text + "]", "data.valid=[" + text + "]",
		fmt.Sprintf("data.seq_len=%d", min(textTokens, max(m.MaxPositions, 2))), "data.shuffle=false", "train.steps=1",
		"train.global_batch=1", "train.micro_batch=1", fmt.Sprintf("train.eval_steps=%d", textSequences),
		"plan.procs=1"}
	cfg, err := configs.Load(configs.Request{Args: args, Getenv: os.Getenv})
	if err != nil {
		return 0, err
	}
	e, err := run.Evaluate(c.Context(), cfg, run.Question{})
	if err != nil {
		return 0, err
	}
	return e.Perplexity, nil
}
