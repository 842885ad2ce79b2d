package trained

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// probeTokens is the length of the sequence that a probe reads.
const probeTokens = 16

// OpenSource opens a model of language whose config.json is in dir and whose weights src has, under the
// names of Hugging Face's files. It has no tokenizer. Close closes src.
func OpenSource(dir string, src checkpoint.Source) (*Trained, error) {
	c, err := configs.ReadModel(dir)
	if err != nil {
		return nil, err
	}
	if c.Denoises() { //lfvet:kind a probe reads tokens
		return nil, fmt.Errorf("%s is no model of text alone", dir)
	}
	t := &Trained{Dir: dir}
	if t.Model, err = build(c); err != nil {
		return nil, err
	}
	return t, t.reads(c, dir, src, opening{})
}

// Probe gives the logits of 16 tokens that are the same for all models of one vocabulary, in float32 (where
// weights are to be rounded as they learnt, in the run's type) on the processor: [16 vocabulary]. It holds
// the whole model in memory as float32, and multiplies weights as they are, also those of a run that rounds
// them: a probe tells of weights.
func (m *Trained) Probe() ([]float32, error) {
	b, err := kernels.Open(kernels.CPU, kernels.Options{})
	if err != nil {
		return nil, err
	}
	defer func(low func(string) int, travel int, gather bool, fake func(string) kernels.Fake) {
		m.Model.Low, m.Model.Travel, m.Model.LowGather, m.Model.Fake = low, travel, gather, fake
	}(m.Model.Low, m.Model.Travel, m.Model.LowGather, m.Model.Fake)
	as := tensor.F32
	if m.Model.Low, m.Model.Travel, m.Model.LowGather = nil, 0, false; !m.AsLearnt {
		m.Model.Fake = nil
	} else if m.Cfg != nil { // a run's: few bits are of weights in its type
		if as, err = tensor.ParseDType(m.Cfg.Run.Train.Precision); err != nil {
			return nil, err
		}
	}
	g, err := m.Generator(b, as)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	ids, positions := make([]int32, probeTokens), make([]int32, probeTokens)
	for i := range ids {
		ids[i], positions[i] = int32((i*7919+11)%m.Model.Spec.Vocab), int32(i)
	}
	return g.AllLogits(ids, positions, []int32{0, probeTokens})
}

// build makes the model of a Hugging Face directory's config.json; one whose class is that of a model of
// rewards has a head of scores.
func build(c configs.Model) (*family.Model, error) {
	m, err := family.Build(c, 0)
	if err == nil && scores(c) {
		m.Spec.Objective = &family.Objective{Loss: objective.Lookup(rewards)}
	}
	return m, err
}

const (
	scoresClass = "ForSequenceClassification" // ends the names of transformers' classes that give a score to a sequence
	rewards     = "reward"                    // the objective that such models learn by
)

// scores reports whether a config.json is of a model of rewards.
func scores(c configs.Model) bool {
	return slices.ContainsFunc(c.Architectures, func(class string) bool {
		return strings.HasSuffix(class, scoresClass)
	})
}

// Scores reports whether a Hugging Face directory has a model of rewards.
func Scores(dir string) bool {
	c, err := configs.ReadModel(dir)
	return err == nil && scores(c)
}
