package trained

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/calibrate"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
)

// Calibration is what weights are rounded by that go to few bits as text says.
type Calibration struct {
	File   string // text
	Tokens int    // of it that are read at most, from the beginning
	Group  int    // columns that share a scale; 0 is the most of 128, 64 and 32 that all matrices have
	// ActOrder has gptq take columns by how great what they read is.
	ActOrder bool
	// Say is told what was done.
	Say func(string)
}

// calibrationTokens are those of a sequence at most.
const calibrationTokens = 512

// calibrated shows a directory's model rounded by what a text makes it read.
func calibrated(src checkpoint.Source, dir string, f Form) (checkpoint.Source, json.RawMessage, error) {
	c := f.Calibration
	config, err := configs.ReadModel(dir)
	if err != nil {
		return nil, nil, err
	}
	if config.Denoises() { //lfvet:kind calibration reads text
		return nil, nil, exit.Usagef("%s is no model of text, which are calibrated", dir)
	}
	m, err := build(config)
	if err != nil {
		return nil, nil, err
	}
	w, err := m.OpenWeights(src, dir)
	if err != nil {
		return nil, nil, err
	}
	text, err := sequences(dir, c, config.MaxPositions)
	if err != nil {
		return nil, nil, err
	}
	b, err := kernels.Open(kernels.CPU, kernels.Options{})
	if err != nil {
		return nil, nil, err
	}
	job := calibrate.Job{Model: m, Weights: w, Source: src, Linear: m.Linears(), Text: text, Group: c.Group,
		ActOrder: c.ActOrder, Backend: b}
	if job.Group == 0 {
		job.Group = groupOf(src, job.Linear)
	}
	out, err := calibrate.Run(job, f.Quantize)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	tokens := 0
	for _, ids := range text {
		tokens += len(ids)
	}
	c.Say(fmt.Sprintf("%s: %d matrices in groups of %d columns, by %d tokens in %d sequences", f.Quantize,
		len(out.Matrices), job.Group, tokens, len(text)))
	if n := len(out.Left); n > 0 {
		c.Say(fmt.Sprintf("%d linear layers stay as they are, which no token reached or whose shape has no place: %s",
			n, strings.Join(out.Left[:min(n, 3)], ", ")))
	}
	return quant.Recode(src, f.Quantize, job.Group, out.Matrices, out.Changed)
}

// groupOf is the most of 128, 64 and 32 columns that divides those of every matrix, 32 where none does.
func groupOf(src checkpoint.Source, linear map[string]bool) int {
	for _, group := range []int{128, 64} {
		all := true
		for _, t := range src.Tensors() {
			all = all && !(linear[t.Name] && t.Shape[1]%group != 0)
		}
		if all {
			return group
		}
	}
	return 32
}

// sequences are the tokens of a text as a model of a directory reads it.
func sequences(dir string, c *Calibration, most int) (out [][]int32, err error) {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return nil, err
	}
	tok, _, err := TokenizerAt(dir)
	if err != nil {
		return nil, err
	}
	if most := c.Tokens * 16; len(text) > most { // no tokenizer has longer tokens on the whole
		text = text[:most]
	}
	ids, err := tok.TryEncode(string(text), false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.File, err)
	}
	ids = ids[:min(len(ids), c.Tokens)]
	n := min(calibrationTokens, max(most, 1))
	for len(ids) >= min(n, 16) {
		part := min(n, len(ids))
		out, ids = append(out, ids[:part]), ids[part:]
	}
	if len(out) == 0 {
		return nil, exit.Usagef("%s has no 16 tokens to calibrate by", c.File)
	}
	return out, nil
}
