package core_test

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// jobText is a job in words.
func jobText(j *actors.Job) string {
	switch j.Kind {
	case actors.RunSegment:
		return fmt.Sprintf("runs %v", j.Action)
	case actors.UpdatePhase:
		return fmt.Sprintf("runs part %d of the optimizer step", j.Segment)
	case actors.LoadBatch:
		return fmt.Sprintf("reads the data of %s%s", stepText(j.Step), behindText(j.Text))
	case actors.SnapshotJob:
		return fmt.Sprintf("copies its state for the checkpoint of step %d", j.Step)
	case actors.WriteJob:
		if len(j.In) > 0 {
			return fmt.Sprintf("writes the part that rank %d has of the checkpoint of step %d",
				j.In[0].Member-int32(firstRank), j.Step)
		}
		return fmt.Sprintf("writes its part of the checkpoint of step %d", j.Step)
	case actors.BeginJob:
		return fmt.Sprintf("makes room for the checkpoint of step %d", j.Step)
	case actors.CommitJob:
		for i, whose := range strings.Split(j.Text, "\x00") {
			if whose != fmt.Sprint(i) {
				return fmt.Sprintf("takes the part of rank %s for that of rank %d", whose, i)
			}
		}
		return fmt.Sprintf("makes the checkpoint of step %d the newest", j.Step)
	case actors.RestoreJob:
		return fmt.Sprintf("goes to the state of step %d %s", j.Step, sources[j.Segment])
	case actors.KeepJob:
		return fmt.Sprintf("copies its state of step %d in memory", j.Step)
	case actors.StateJob:
		return fmt.Sprintf("copies its state of step %d for another", j.Step)
	}
	return "does something unknown"
}

var sources = map[int32]string{core.FromDisk: "on disk", core.FromCopy: "in a copy in memory",
	core.FromMember: "that others hold"}

// behindText is a place in the data.
func behindText(place string) string {
	if place == "" {
		return ""
	}
	return ", from " + place + " on"
}

func stepText(step int64) string {
	if step < 0 {
		return fmt.Sprintf("evaluation batch %d", -step)
	}
	return fmt.Sprintf("step %d", step)
}

// text is a message in words.
func (w *world) text(m *actors.Message) string {
	words := w.words(m)
	if m.Epoch > 0 && m.Epoch != actors.AnyEpoch {
		words += fmt.Sprintf(" [epoch %d]", m.Epoch)
	}
	return words
}

func (w *world) words(m *actors.Message) string {
	switch m.Kind {
	case actors.Started:
		return fmt.Sprintf("Started, after %d ends", m.Step)
	case actors.Down:
		if m.Member == 1 {
			return "Down: " + m.Text + ", and no other takes its place"
		}
		return "Down: " + m.Text
	case actors.Open:
		if m.Step > 0 && core.OpeningOf(m.Values).Scale != 1 {
			return fmt.Sprintf("Open step %d with loss scale %g", m.Step, core.OpeningOf(m.Values).Scale)
		}
		return "Open " + stepText(m.Step)
	case actors.Load:
		return "Load " + stepText(m.Step) + behindText(m.Text)
	case actors.Batch:
		return fmt.Sprintf("Batch %d of %s", m.Action.Micro, stepText(m.Step))
	case actors.Part:
		what := fmt.Sprint(m.Action)
		if m.Action.Kind == plan.Step {
			what = "the optimizer step"
		}
		return fmt.Sprintf("Part of member %d for part %d of %s", m.Member, m.Segment, what)
	case actors.Activation, actors.Cotangent:
		return fmt.Sprintf("%s for %v", map[actors.Kind]string{actors.Activation: "Activation",
			actors.Cotangent: "Cotangent"}[m.Kind], m.Action)
	case actors.Credit:
		return fmt.Sprintf("Credit for %s", [2]string{"an activation", "a cotangent"}[m.Comm%2])
	case actors.Ready:
		return fmt.Sprintf("Ready for the commit of step %d, squared norms %v", m.Step,
			core.Behind(m.Values))
	case actors.Commit:
		v := core.VerdictOf(m.Values)
		return fmt.Sprintf("Commit of step %d: norm %.4g, factor %g, rate %g, update %d", m.Step,
			v.Norm, v.Factor, v.LR, v.Update)
	case actors.Closed:
		return "Closed " + stepText(m.Step)
	}
	return w.rarer(m)
}

// rarer are the messages of saves, recovery and the run's end.
func (w *world) rarer(m *actors.Message) string {
	switch m.Kind {
	case actors.Save:
		if m.Segment != core.FromDisk {
			return fmt.Sprintf("Save step %d for %s, %s", m.Step, w.names[actors.Ref(m.Member)],
				sources[m.Segment])
		}
		return fmt.Sprintf("Save step %d", m.Step)
	case actors.Queued:
		return fmt.Sprintf("Queued: the state of step %d is copied", m.Step)
	case actors.Durable:
		if of := actors.Ref(m.Member); of != m.From {
			return fmt.Sprintf("Durable: what %s has of step %d is on disk", w.names[of], m.Step)
		}
		return fmt.Sprintf("Durable: the state of step %d is on disk", m.Step)
	case actors.Halt:
		return strings.TrimSpace("Halt " + m.Text)
	case actors.Failed:
		return fmt.Sprintf("Failed: %v", m.Err)
	case actors.Report:
		return w.report(m)
	case actors.Join:
		return fmt.Sprintf("Join, after %d ends", m.Step)
	case actors.Rewind:
		s := fmt.Sprintf("Rewind to the state of step %d %s", m.Step, sources[m.Segment])
		if m.Member == 1 {
			s += ", you have none"
		}
		if m.Values != nil {
			s += ", with its Commit"
		}
		if m.Text != "" {
			s += ", data" + behindText(m.Text)
		}
		return s
	case actors.Rewound:
		return fmt.Sprintf("Rewound to step %d", m.Step)
	case actors.Keep:
		s := fmt.Sprintf("Keep a copy of step %d", m.Step)
		for _, r := range m.Values[2 : 2+int(m.Values[1])] {
			s += fmt.Sprintf(", and one at %s", w.names[actors.Ref(r)])
		}
		return s
	case actors.Buddy:
		return fmt.Sprintf("Buddy, keep my state of step %d", m.Step)
	case actors.Kept:
		return fmt.Sprintf("Kept: the state of %s after step %d", w.names[actors.Ref(m.Member)], m.Step)
	case actors.Give:
		return fmt.Sprintf("Give %s the state of step %d", w.names[actors.Ref(m.Member)], m.Step)
	case actors.State:
		return fmt.Sprintf("State of step %d, to take", m.Step)
	case actors.Broken:
		return "Broken: " + m.Text
	case actors.Tick:
		return "Tick"
	case actors.Claim:
		return "Claim: say what you hold"
	case actors.Holding:
		return fmt.Sprintf("Holding: the state of step %d, %s", m.Step, core.HoldingText(m.Values))
	}
	return fmt.Sprintf("message of kind %d", m.Kind)
}

func (w *world) report(m *actors.Message) string {
	s := fmt.Sprintf("Report %s, step %d", m.Text, m.Step)
	switch m.Text {
	case core.TopicStep:
		v := core.SummaryOf(m.Values)
		s += fmt.Sprintf(": loss %g", v.Loss)
		if v.Overflow {
			s += ", gradients not finite"
		}
	case core.TopicSpike:
		v := core.SpikeOf(m.Values)
		s += fmt.Sprintf(": gradient norm %.4g, usual is %.4g, loss %g of %.4g; from step %d on again, with the state of "+
			"step %d", v.Norm, v.UsualNorm, v.Loss, v.UsualLoss, v.From, v.State)
	case core.TopicExperts:
		for _, l := range core.Loads(m.Values) {
			s += fmt.Sprintf("; block %d: %g tokens, %g dropped, entropy %g, rows %v", l.Block, l.Tokens,
				l.Dropped,
				l.Entropy, l.Rows)
		}
	case core.TopicEval:
		s += fmt.Sprintf(": loss %g", core.EvalLoss(m.Values))
	case core.TopicEnd:
		if core.Stopped(m.Values) {
			s += ", as requested"
		}
	case core.TopicCopied:
		s += fmt.Sprintf(": again after %g", core.CopyingOf(m.Values).Every)
	}
	if void, ok := m.Err.(*core.VoidError); ok && void.Over {
		s += fmt.Sprintf(" of rank %d, more rows than planned", void.Rank)
	}
	if m.Err != nil {
		s += fmt.Sprintf(": %v", m.Err)
	}
	return s
}
