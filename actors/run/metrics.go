package run

import (
	"math"
	"slices"
)

// Metrics is a line of metrics.jsonl.
type Metrics struct {
	Step      int64   `json:"step"`
	Loss      float64 `json:"loss"`
	GradNorm  float64 `json:"grad_norm"`
	LR        float64 `json:"lr"`
	TokensSec float64 `json:"tokens_per_second"`
	MFU       float64 `json:"mfu"`
	DataWait  float64 `json:"data_wait_seconds"`
	PeakBytes float64 `json:"peak_bytes"`
	Scale     float64 `json:"loss_scale"`
	Skipped   bool    `json:"skipped,omitempty"`
	Seconds   float64 `json:"seconds"`
	Slowest   int     `json:"slowest_rank"`
	// Pass is how many passes over the data are made, with train.epochs.
	Pass float64 `json:"pass,omitempty"`
	// Drawn compares the sampler with the trainer, of runs that draw their answers.
	Drawn *DrawnGap `json:"drawn,omitempty"`
	// Experts are those of a mixture, every log.experts steps.
	Experts []ExpertUse `json:"experts,omitempty"`
	// Moved are the layers whose experts have moved behind the step, every train.balance_every steps.
	Moved []ExpertMove `json:"moved,omitempty"`
	// Products are those of few bits whose errors were looked at, every train.adaptive.every steps.
	Products []ProductError `json:"products,omitempty"`
	// Scores are the greatest of each layer's attention, with optimizer.qk_clip or log.attention_logits.
	Scores []GreatestScore `json:"attention_logits,omitempty"`
	// Figures are further columns, of runs that have them.
	Figures Figures `json:"-"`
}

// finite replaces what JSON cannot hold.
func finite(m Metrics) Metrics {
	for _, f := range []*float64{&m.Loss, &m.GradNorm, &m.TokensSec, &m.MFU} {
		if math.IsNaN(*f) || math.IsInf(*f, 0) {
			*f = -1
		}
	}
	if d := m.Drawn; d != nil && (math.IsNaN(d.Gap) || math.IsInf(d.Gap, 0)) {
		m.Drawn = &DrawnGap{Gap: -1, Tokens: d.Tokens, Older: d.Older, Suspected: d.Suspected}
	}
	m.Scores = slices.Clone(m.Scores)
	for i := range m.Scores {
		if x := &m.Scores[i]; math.IsNaN(x.Score) || math.IsInf(x.Score, 0) {
			x.Score = -1
		}
	}
	m.Products = slices.Clone(m.Products)
	for i := range m.Products {
		if x := &m.Products[i]; math.IsNaN(x.Error) || math.IsInf(x.Error, 0) {
			x.Error = -1
		}
	}
	return m
}
