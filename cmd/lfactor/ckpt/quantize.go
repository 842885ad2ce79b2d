package ckpt

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/trained"
	"github.com/lfactor/lfactor/configs"
)

// Of the text that a perplexity is of: tokens of a sequence, at most, and sequences.
const (
	textTokens    = 512
	textSequences = 32
)

// rounded makes a Hugging Face directory whose linear layers are in few bits, of one or by way of one.
func (o *conversion) rounded(c *cobra.Command, src, dst string) error {
	if !folder(src) || foreign(src) {
		return o.between(src, dst, func(dir string) error { return o.rounded(c, dir, dst) })
	}
	form := trained.Form{DType: o.dtype, Shard: int64(o.shard), Quantize: o.quantize, Journal: o.journal}
	if o.text == "" {
		return trained.Rewrite(src, "", dst, form)
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
	fmt.Fprintf(os.Stderr, "perplexity %.4f before, %.4f after (%+.2f %%)\n", before, after,
		100*(after/before-1))
	return nil
}

// perplexity is that of a model of the beginning of a text.
func perplexity(c *cobra.Command, dir, text string) (float64, error) {
	m, err := configs.ReadModel(dir)
	if err != nil {
		return 0, err
	}
	args := []string{"model.path=" + dir, "data.kind=text", "data.paths=[" + text + "]", "data.valid=[" +
		text + "]",
		fmt.Sprintf("data.seq_len=%d", min(textTokens, max(m.MaxPositions, 2))), "data.shuffle=false",
		"train.steps=1",
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
