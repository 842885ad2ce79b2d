package run

import (
	"github.com/lfactor/lfactor/actors/run/rollout"
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
	Drawn *rollout.DrawnGap `json:"drawn,omitempty"`
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
	all := []*float64{&m.Loss, &m.GradNorm, &m.TokensSec, &m.MFU}
	if m.Drawn != nil {
		d := *m.Drawn
		m.Drawn, all = &d, append(all, &d.Gap)
	}
	m.Scores, m.Products = slices.Clone(m.Scores), slices.Clone(m.Products)
	for i := range m.Scores {
		all = append(all, &m.Scores[i].Score)
	}
	for i := range m.Products {
		all = append(all, &m.Products[i].Error)
	}
	for _, x := range all {
		if math.IsNaN(*x) || math.IsInf(*x, 0) {
			*x = -1
		}
	}
	return m
}
