package policies

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/family"
)

// FASTReport says what was learnt of chunks of actions.
type FASTReport struct {
	Folder string  `json:"folder"`
	Chunks int     `json:"chunks"`           // that it was learnt of
	Vocab  int     `json:"vocab"`            // tokens
	Each   float64 `json:"tokens_each"`      // of a chunk, on average
	Most   int     `json:"tokens_most"`      // of a chunk
	Plain  int     `json:"numbers_each"`     // of a chunk: what policy.tokens: bins takes
	Worst  float64 `json:"worst_difference"` // of what is read back, scaled
}

// FitFAST learns the tokenizer that policy.fast of a run names of chunks of its recordings, as the run
// scales them, about most of them from all over the data, and writes it there.
func FitFAST(cfg *configs.Config, most, vocab int, scale float64) (*FASTReport, error) {
	p := &cfg.Run.Policy
	if p.Tokens != "fast" {
		return nil, cfg.Fault("policy.tokens", p.Tokens+", and only fast has a tokenizer",
			"set fast, and policy.fast to a folder")
	}
	if err := token.FreeForFAST(p.Fast); err != nil {
		return nil, cfg.Fault("policy.fast", err.Error(), "")
	}
	d := &family.Denoiser{Patch: [3]int{1, 1, 1}, Channels: 1 << 16, Policy: family.Policy{Chunk: p.Horizon, Once: true,
		Sight: &family.Sight{Views: p.ViewsMax(), Patches: 1, Pixels: 3}}}
	x, err := NewRobots(cfg, d)
	if err != nil {
		return nil, err
	}
	var chunks [][][]float64
	for _, set := range x.sets {
		some, err := x.chunks(set, most/len(x.sets)+1)
		if err != nil {
			return nil, cfg.Fault("data.paths", err.Error(), "")
		}
		chunks = append(chunks, some...)
	}
	f, err := token.FitFAST(chunks, scale, vocab)
	if err != nil {
		return nil, cfg.Fault("data.paths", err.Error(), "")
	}
	if err := f.Save(p.Fast); err != nil {
		return nil, err
	}
	r := &FASTReport{Folder: p.Fast, Chunks: len(chunks), Vocab: f.VocabSize()}
	for _, c := range chunks {
		ids, err := f.Encode(c)
		if err != nil {
			return nil, err
		}
		back, err := f.Decode(ids, len(c), len(c[0]))
		if err != nil {
			return nil, err
		}
		r.Each, r.Most = r.Each+float64(len(ids))/float64(len(chunks)), max(r.Most, len(ids))
		r.Plain = max(r.Plain, len(c)*len(c[0]))
		for t := range c {
			for i, v := range c[t] {
				r.Worst = max(r.Worst, math.Abs(back[t][i]-v))
			}
		}
	}
	return r, nil
}

// chunks are about most of a data set's chunks, scaled as a policy learns them.
func (x *Robots) chunks(set *robotSet, most int) (out [][][]float64, err error) {
	l, err := recordings.OpenRobots(set.name, dataset.Options{Robot: robotKeys(&x.Policy)})
	if err != nil {
		return nil, err
	}
	defer l.Close() //nolint:errcheck // it was read only
	every, at := max(1, int(l.Steps())/max(1, most)), 0
	err = l.Numbers(func(states, actions [][]float64) {
		for k := range states {
			if at++; (at-1)%every != 0 {
				continue
			}
			f := recordings.RobotFrame{RobotLook: recordings.RobotLook{State: states[k]}}
			for n := k; n < k+x.Chunk; n++ {
				f.Actions = append(f.Actions, actions[min(n, len(actions)-1)])
			}
			if c, err := x.aims(&f, set.scale); err == nil { // others are set aside when they are learnt
				out = append(out, c)
			}
		}
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("no frame of %s has a state and actions that can be read", set.name)
	}
	return out, err
}
