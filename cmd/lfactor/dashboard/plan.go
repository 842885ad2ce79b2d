package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
)

// planned is a run's plan as it was laid out, once.
type planned struct {
	once sync.Once
	text planText
	err  error
}

// planRank is a rank of the plan: bytes that are predicted, and what it holds.
type planRank struct {
	Rank       int    `json:"rank"`
	Name       string `json:"name"`
	Blocks     string `json:"blocks"`
	Params     int64  `json:"params"`
	State      int64  `json:"state"`
	Grads      int64  `json:"grads"`
	Activation int64  `json:"activations"`
	Total      int64  `json:"total"`
	Held       int64  `json:"held"` // measured at the newest look, 0 where it is not known
}

// planText is a plan beside what was measured. Times are seconds.
type planText struct {
	Cluster  string     `json:"cluster"` // on which a step was simulated, "" for none
	Step     float64    `json:"step"`    // simulated
	MFU      float64    `json:"mfu"`     // simulated
	Why      string     `json:"why,omitempty"`
	Ranks    []planRank `json:"ranks"`
	Peak     int64      `json:"peak"`     // predicted, of the rank that needs most
	Measured float64    `json:"measured"` // median of the last 100 steps
	PeakWas  float64    `json:"peak_was"` // measured
	MFUWas   float64    `json:"mfu_was"`  // median of the last 100 steps
	WaitWas  float64    `json:"wait_was"` // share of time, median of the last 100 steps
	Schedule string     `json:"schedule"`
}

const (
	planRanksMost = 4096            // of a plan that is laid out for the page
	planTimeMost  = 5 * time.Second // for simulating a step
)

// config is the run's configuration as its folder has it. Paths in it are relative to the folder that the
// run was started in.
func (f *folder) config() (*configs.Config, error) {
	return configs.Load(configs.Request{File: filepath.Join(f.dir, "run.yaml"), Getenv: os.Getenv})
}

// planOf lays the run's plan out and simulates a step of it, once, and puts beside it what was measured.
func (s *Server) planOf(f *folder, _ *http.Request) (any, error) {
	f.plan.once.Do(func() { f.plan.text, f.plan.err = s.layOut(f) })
	if f.plan.err != nil {
		return nil, f.plan.err
	}
	t := f.plan.text
	t.Ranks = slices.Clone(t.Ranks)
	all, _, _ := f.ask()
	f.look()
	defer f.mu.Unlock()
	held := map[string]int64{}
	if f.window != nil {
		for _, a := range f.window.Actors {
			held[a.Actor] = a.Memory
		}
	}
	for _, a := range all {
		held[record.ShortName(a.Name)] = a.Memory
	}
	for i := range t.Ranks {
		t.Ranks[i].Held = held[rankName(t.Ranks[i].Rank)]
	}
	t.Measured, t.MFUWas, t.WaitWas = f.curves.recent("seconds"), f.curves.recent("mfu"), f.curves.recent("wait")
	t.PeakWas = f.curves.recent("memory")
	return t, nil
}

// recent is the median of a curve's last hundred values, 0 for none.
func (s *series) recent(name string) float64 {
	for i, c := range curves {
		if c.name != name {
			continue
		}
		v := slices.Clone(s.cols[i][max(0, len(s.cols[i])-100):])
		v = slices.DeleteFunc(v, func(x float32) bool { return x != x })
		if len(v) == 0 {
			return 0
		}
		slices.Sort(v)
		return float64(v[len(v)/2])
	}
	return 0
}

// layOut lays a run's plan out, and simulates a step where a machine is described.
func (s *Server) layOut(f *folder) (t planText, err error) {
	cfg, err := f.config()
	if err != nil {
		return t, err
	}
	if err := setup.Vocabulary(cfg); err != nil {
		return t, fmt.Errorf(
			"%w; lfactor ui reads the run's files from the folder that it is started in, as the run did", err)
	}
	j, err := layout.FromConfig(cfg)
	if err != nil {
		return t, err
	}
	if s.o.Machine != nil {
		rehearsal.PriceOn(j, s.o.Machine)
	}
	l, err := layout.New(j)
	if err != nil {
		return t, err
	}
	if l.World() > planRanksMost {
		return t, fmt.Errorf("the plan has %d ranks; up to %d are laid out here", l.World(), planRanksMost)
	}
	t.Schedule = j.Schedule
	for r, part := range l.Ranks {
		m := l.Memory(r)
		var blocks []string
		for _, b := range part.Stages {
			blocks = append(blocks, fmt.Sprintf("%d-%d", l.Stages[b].From, l.Stages[b].To-1))
		}
		row := planRank{
			Rank:       r,
			Name:       l.Name(r),
			Blocks:     strings.Join(blocks, " "),
			Params:     m.Params,
			State:      m.State,
			Grads:      m.Grads,
			Activation: max(m.Activations, m.Update),
			Total:      m.Total(),
		}
		t.Peak = max(t.Peak, row.Total)
		t.Ranks = append(t.Ranks, row)
	}
	if err := s.simulate(l, &t); err != nil {
		t.Why = err.Error()
	}
	return t, nil
}

// simulate prices a step on the described machine.
func (s *Server) simulate(l *layout.Layout, t *planText) error {
	if s.o.Machine == nil {
		return errors.New("no machine is described: lfactor ui --cluster NAME simulates a step on one")
	}
	r, err := rehearsal.Of(l, rehearsal.Options{Machine: s.o.Machine})
	if err != nil {
		return err
	}
	until := time.Now().Add(planTimeMost)
	res := r.Run(sim.Options{Stop: func() bool { return time.Now().After(until) }})
	if err := rehearsal.Fault(res); err != nil {
		return err
	}
	sum := r.Summary(res)
	t.Cluster, t.Step, t.MFU = sum.Cluster, sum.StepSeconds, sum.MFU
	return nil
}

func rankName(rank int) string { return fmt.Sprintf("rank%d", rank) }

func segment(n int) string { return fmt.Sprintf(".%d", n) }

// kindOf is the kind of an action as a trace names it, "" for what is none.
func kindOf(action string) string {
	a, err := plan.Parse(action)
	if err != nil {
		return ""
	}
	return fmt.Sprint(a.Kind)
}
