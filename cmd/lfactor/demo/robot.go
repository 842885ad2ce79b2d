package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/world"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// robotShown are recordings that leave something to be corrected.
const robotShown = 160

// Seeds of tables: those that a policy is tried on, and those on which it is corrected.
const (
	robotTried     = 1 << 20
	robotCorrected = 2 << 20
)

// robot has one who sees show how to reach discs on a table, trains a small policy of Pi0.5's kind on the recordings,
// corrects it where it acts, and has it reach discs on tables that it has not seen, beside a hand that does what was
// done on average.
func (s *session) robot() error {
	if err := s.clear("checkpoints", "run", "recordings", "tokenizer", "corrections", "corrected",
		"run-corrected"); err != nil {
		return err
	}
	episodes := taught(min(robotShown, 25*s.steps), 1)
	set := recordings.RobotTop(10, reachSide)
	if err := errors.Join(recordings.WriteRobot(s.in("recordings"), set, episodes), s.lay("robot", "", nil)); err != nil {
		return err
	}
	frames := 0
	for _, e := range episodes {
		frames += len(e.Frames)
	}
	s.tell("data    %d recordings of %d frames as a LeRobot data set of version 3 (%v)\n", len(episodes), frames,
		s.so(100*time.Millisecond))
	after := max(1, s.steps/3) // steps with corrections
	if _, err := s.train("robot.yaml", values{"at": "checkpoints", "log": "run", "rate": 3e-3,
		"steps": max(1, s.steps-after), "model": fmt.Sprintf("file: %q", s.in("model.yaml")),
		"paths": fmt.Sprintf("%q", s.in("recordings"))}, run.Options{}); err != nil {
		return err
	}
	first, wrong, err := try(s.ctx, s.in("checkpoints"), true)
	if err != nil {
		return err
	}
	set.Like = s.in("recordings")
	corrected, _, err := world.Corrected((&reachWorld{}).Spec(), wrong.Episodes)
	if err != nil {
		return err
	}
	if err := recordings.WriteRobot(s.in("corrections"), set, corrected); err != nil {
		return err
	}
	s.tell("data    %d corrected rollouts on other tables, of which the policy reached the disc on %.0f %%\n",
		len(corrected), 100*wrong.Rate)
	if _, err := s.train("robot.yaml", values{"at": "corrected", "log": "run-corrected", "rate": 1e-3, "steps": after,
		"model": fmt.Sprintf("path: %q", s.in("checkpoints", "release_hf_weights")),
		"paths": fmt.Sprintf("%q, %q", s.in("recordings"), s.in("corrections"))}, run.Options{}); err != nil {
		return err
	}
	last, _, err := try(s.ctx, s.in("corrected"), false)
	if err != nil {
		return err
	}
	blind, err := attempts(s.ctx, usual(averageAction(episodes)), robotTried, false)
	if err != nil {
		return err
	}
	return s.robotVerdict(first[0], last[0], last[1], blind)
}

// robotVerdict says how the policy did before and after it was corrected, with its camera covered, and how a hand
// does without one.
func (s *session) robotVerdict(first, last, covered, blind *world.Result) error {
	left := s.left()
	left["attempts"], left["recordings"], left["corrections"] = s.in("attempts.html"), s.in("recordings"),
		s.in("corrections")
	left["export"] = s.in("corrected", "release_hf_weights")
	if err := world.Page(left["attempts"], "Reaching discs on unseen tables", fmt.Sprintf("Reached: %.0f %%; before 100 "+
		"corrected rollouts: %.0f %%; without a policy: %.0f %%.", 100*last.Rate, 100*first.Rate, 100*blind.Rate),
		[]world.Part{{Title: "The policy", Episodes: last.Episodes[:20]},
			{Title: "The policy before it was corrected", Episodes: first.Episodes[:20]},
			{Title: "What was done on average", Episodes: blind.Episodes[:5]}}); err != nil {
		return err
	}
	s.say("100 tables that no recording has: the disc is reached on %.0f %% (95 %%: %.0f to %.0f) · with the camera "+
		"covered on %.0f %% · doing what was done on average on %.0f %%\n", 100*last.Rate, 100*last.Interval.Low,
		100*last.Interval.High, 100*covered.Rate, 100*blind.Rate)
	s.say("before 100 corrected rollouts the same tables: %.0f %%\n", 100*first.Rate)
	s.end(map[string]any{"reached": last.Rate, "reached_before": first.Rate, "reached_covered": covered.Rate,
		"reached_without": blind.Rate, "files": left})
	s.say("attempts %s · metrics %s · export %s, for lerobot\n", left["attempts"], left["metrics"], left["export"])
	var fault error
	switch {
	case last.Rate < 0.8 || blind.Rate > 0.2:
		fault = errors.New("four in five discs should be reached, and one in five at most without a policy")
	case last.Rate <= first.Rate:
		fault = fmt.Errorf("corrections should raise what is reached: %.0f %% before them, and %.0f %% after",
			100*first.Rate, 100*last.Rate)
	}
	return s.over(fault)
}

// attempts has a policy act on 100 tables.
func attempts(ctx context.Context, p world.Policy, seed uint64, covered bool) (*world.Result, error) {
	return world.Roll(ctx, p, world.Rolling{Episodes: 100, Worlds: 100, Seed: seed, Executed: reachUsed, Most: reachMost,
		Keep: true, Make: func(context.Context) (world.World, error) { return &reachWorld{covered: covered}, nil }})
}

// try has a run's policy act with its camera and without, and on the tables of its corrections where they are asked for.
func try(ctx context.Context, dir string, correct bool) (tried [2]*world.Result, corrected *world.Result, err error) {
	m, err := trained.Open(dir, "")
	if err != nil {
		return tried, nil, err
	}
	defer m.Close()
	a, err := policies.NewActor(m)
	if err != nil {
		return tried, nil, err
	}
	defer a.Close()
	for i := range tried {
		if tried[i], err = attempts(ctx, a, robotTried, i == 1); err != nil {
			return tried, nil, err
		}
	}
	if correct {
		corrected, err = attempts(ctx, a, robotCorrected, false)
	}
	return tried, corrected, err
}

// usual is a hand that does what was done on average.
type usual []float64

// Abilities implements world.Policy.
func (u usual) Abilities() policies.Abilities {
	return policies.Abilities{Numbers: 2, Width: 2, Cameras: []string{reachCamera}}
}

// Act implements world.Policy.
func (u usual) Act(robots []policies.Seen) ([][][]float64, error) {
	out := make([][][]float64, len(robots))
	for i := range out {
		for range reachUsed {
			out[i] = append(out[i], u)
		}
	}
	return out, nil
}

// averageAction is what was done on average in recordings.
func averageAction(episodes []recordings.RobotEpisode) []float64 {
	sum, n := make([]float64, 2), 0.0
	for _, e := range episodes {
		for _, f := range e.Frames {
			for i, v := range f.Action {
				sum[i] += float64(v)
			}
			n++
		}
	}
	return []float64{sum[0] / n, sum[1] / n}
}
