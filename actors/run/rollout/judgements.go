package rollout

import (
	"path/filepath"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/fit"
)

// Judgement is what a reward said of a drawn answer, and says of it now.
type Judgement struct {
	Sample  int64    `json:"sample"`
	Index   int      `json:"index"`
	Version int64    `json:"version"` // updates behind the weights that drew it
	Prompt  string   `json:"prompt"`
	Text    string   `json:"text"`
	Was     *float64 `json:"was"` // null where it had none
	Fault   string   `json:"fault,omitempty"`
	Now     *float64 `json:"now"`
	Why     string   `json:"why,omitempty"` // why it has none now
	// Wrong says that the two differ, or that the advantage does not follow from the rewards of the group.
	Wrong bool `json:"wrong"`
	// Advantage is the one that the answer had, and Follows what follows from the logged rewards.
	Advantage float64 `json:"advantage"`
	Follows   float64 `json:"follows"`
}

// Judge judges the logged answers of a step of a run again, those to one sample where that is not negative,
// as the run's own configuration says. No model is read: the log has what the reward saw.
func Judge(dir string, step, sample int64) ([]Judgement, error) {
	cfg, err := configs.Load(configs.Request{File: filepath.Join(dir, "run.yaml")})
	if err != nil {
		return nil, err
	}
	l := fit.Loss(cfg)
	if l == nil || l.Policy == nil || l.Policy.Unjudged {
		return nil, exit.Usagef("%s judges no answers that it draws", dir)
	}
	x, err := New(Of{Cfg: cfg}, l)
	if err != nil {
		return nil, err
	}
	defer x.cancel()
	logged, err := Logged(filepath.Join(dir, FileName), x.Plan.First(x.Plan.Round(step)))
	if err != nil {
		return nil, err
	}
	logged = logged[max(0, len(logged)-cfg.Run.Train.GlobalBatch):]
	follows := map[*Answer]float64{}
	if l.Policy.Advantages != nil {
		copies := make([]*Answer, len(logged))
		for i, a := range logged {
			b := *a
			copies[i] = &b
		}
		x.compare(copies)
		for i, a := range logged {
			follows[a] = copies[i].Advantage
		}
	}
	var out []Judgement
	var asked []*Answer
	for _, a := range logged {
		if sample < 0 || a.Sample == sample {
			asked = append(asked, a)
		}
	}
	if len(asked) == 0 {
		return nil, exit.Usagef("step %d drew no answers to sample %d", step, sample)
	}
	for i, y := range x.results(asked) {
		a := asked[i]
		j := Judgement{Sample: a.Sample, Index: a.Index, Version: a.Version, Prompt: a.Asked, Text: a.Text,
			Was: a.Reward, Fault: a.Fault, Advantage: a.Advantage, Follows: a.Advantage}
		if f, ok := follows[a]; ok {
			j.Follows = f
		}
		if y.Err != nil {
			j.Why = y.Err.Error()
		} else {
			j.Now = &y.Value
		}
		j.Wrong = (j.Was == nil) != (j.Now == nil) || j.Was != nil && *j.Was != *j.Now || j.Advantage != j.Follows
		out = append(out, j)
	}
	return out, nil
}
