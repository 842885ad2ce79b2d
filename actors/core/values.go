package core

import "github.com/lfactor/lfactor/actors"

// Messages and jobs carry numbers in one flat list, which a simulation passes on without allocating and which
// the wire copies as it is. This file and lists.go are their one codec: what a number means is written and
// read here and nowhere else. Records of a fixed length are here, lists of any length, which follow them, in
// lists.go. A reader copies a record out of the list and allocates nothing. Which record a list begins with
// follows from the kind of the message, as the comments of actors.Kind say:
//
//	Open                     Opening
//	Done, Closed, Ready      Usage; behind it of a Ready norms, ExpertNorms and Loads, of a Closed
//	                         Loads and Findings
//	Commit, Rewind           Verdict; behind it Placed
//	Credit                   a number of messages: CreditsOf
//	Keep, Buddy, State       kept
//	Holding                  holding
//	Report                   by its topic: Summary, Slowness, Copying, Return …
//
// A job of an action carries the Opening of its step, a job of the optimizer step that too before the commit
// and the Verdict behind it; a CommitJob carries a Filed.

// Opening is what a step begins with.
// In the words of the field: dynamic loss scaling.
type Opening struct {
	Scale float64 // loss scale
	Reach float64 // of sums in fixed point; see LossScale
}

// OpeningOf reads the numbers of an Open, or of a job of an action.
func OpeningOf(v []float64) Opening { return Opening{v[0], v[1]} }

// Values writes it as numbers.
func (x Opening) Values() []float64 { return []float64{x.Scale, x.Reach} }

// Usage is what a job has made and used, or all jobs of a rank in a step so far. Times are nanoseconds.
type Usage struct {
	Loss   float64 // this rank's share of the weighted loss
	Busy   float64 // in jobs
	Wait   float64 // waiting for data
	Peak   float64 // most bytes
	Over   float64 // jobs to which more rows of tokens came than memory is planned for
	Wild   float64 // jobs in which a router's logits were not finite
	CPU    float64 // of processors that its process had during its jobs
	Queued float64 // that threads of its process waited for one meanwhile
	Stood  float64 // for which its process stood still and waited for no processor, since its job before
	// Gap is the largest difference, in nats, between log-probabilities and those with which tokens were
	// drawn by the same weights
	Gap float64
}

// UsageLen is how many numbers a Usage is.
const UsageLen = 10

// UsageOf reads the head of the numbers of a Done, Ready or Closed. What they do not reach to is 0.
func UsageOf(v []float64) Usage {
	if len(v) < UsageLen {
		var whole [UsageLen]float64
		copy(whole[:], v)
		v = whole[:]
	}
	w := (*[UsageLen]float64)(v)
	return Usage{Loss: w[0], Busy: w[1], Wait: w[2], Peak: w[3], Over: w[4], Wild: w[5], CPU: w[6], Queued: w[7],
		Stood: w[8], Gap: w[9]}
}

// Put writes it over the head of a list, which it makes where there is none, and returns the list.
func (x *Usage) Put(v []float64) []float64 {
	if v == nil {
		v = make([]float64, UsageLen)
	}
	w := (*[UsageLen]float64)(v)
	*w = [UsageLen]float64{x.Loss, x.Busy, x.Wait, x.Peak, x.Over, x.Wild, x.CPU, x.Queued, x.Stood, x.Gap}
	return v
}

// Values writes it as a list of its own.
func (x *Usage) Values() []float64 { return x.Put(nil) }

// Behind is what follows a Usage.
func Behind(v []float64) []float64 { return v[min(len(v), UsageLen):] }

// add takes in what the numbers of a Done say that a job has used: all adds up, but for the peak and the gap.
func (x *Usage) add(v []float64) {
	if len(v) < UsageLen {
		if len(v) == 0 {
			return
		}
		y := UsageOf(v)
		v = y.Values()
	}
	w := (*[UsageLen]float64)(v)
	x.Loss += w[0]
	x.Busy += w[1]
	x.Wait += w[2]
	x.Peak = max(x.Peak, w[3])
	x.Over += w[4]
	x.Wild += w[5]
	x.CPU += w[6]
	x.Queued += w[7]
	x.Stood += w[8]
	x.Gap = max(x.Gap, w[9])
}

// Verdict is what the coordinator decides of a step: the scalars of its update.
type Verdict struct {
	Norm     float64 // global gradient norm, after unscaling
	Factor   float64 // what every gradient is multiplied with; 0 if the step is skipped
	Overflow bool    // the step makes no update: the norm is not finite, or the step is given up
	LR       float64 // learning rate
	Update   int64   // number of this update, from 1: Adam's bias correction
	Loss     float64 // of the step
	Moves    bool    // experts move behind the update: where to follows the record
	// Groups is Factor for the parameters of each of RunLayout.Clips
	Groups [ClipsMost]float64
	after  kept // what the coordinator holds after the step; of a loss scale what changes in a run
}

// ClipsMost is how many groups of parameters may have a norm of their own to clip by.
const ClipsMost = 8

// FactorOf is what gradients of a group of RunLayout.ClipOf are multiplied with.
func (x *Verdict) FactorOf(group uint8) float64 {
	if group == 0 {
		return x.Factor
	}
	return x.Groups[group-1]
}

// verdictLen is how many numbers a Verdict is, and keptAt the place of what the coordinator holds in them.
const (
	groupsAt   = 7
	keptAt     = groupsAt + ClipsMost
	verdictLen = keptAt + keptLen
)

// IsVerdict reports whether the numbers of a job of the optimizer step are those of a commit.
func IsVerdict(v []float64) bool { return len(v) >= verdictLen }

// VerdictOf reads a commit.
func VerdictOf(v []float64) Verdict {
	w := (*[verdictLen]float64)(v)
	return Verdict{Norm: w[0], Factor: w[1], Overflow: w[2] != 0, LR: w[3], Update: int64(w[4]), Loss: w[5],
		Moves:  w[6] != 0,
		Groups: [ClipsMost]float64(w[groupsAt:]), after: keptAfter(v, LossScale{})}
}

// Values writes it as numbers.
func (x Verdict) Values() []float64 {
	v := append(make([]float64, 0, verdictLen), x.Norm, x.Factor, number(x.Overflow), x.LR, float64(x.Update),
		x.Loss, number(x.Moves))
	v = append(v, x.Groups[:]...)
	return x.after.append(v)
}

// verdictStep is the step that a commit is of.
func verdictStep(v []float64) int64 { return keptAfter(v, LossScale{}).step }

// keptAfter is what the coordinator holds after the step of a commit.
func keptAfter(v []float64, s LossScale) kept { return keptOf(v[keptAt:], s) }

// verdictAlone is a verdict without the places of experts that follow it; there may be none.
func verdictAlone(v []float64) []float64 { return v[:min(len(v), verdictLen)] }

// MovesExperts reports whether the numbers of a commit, or of a job behind it, say where experts go.
func MovesExperts(v []float64) bool { return len(v) > verdictLen }

// Moves reads from a commit where experts are to go; nil is nowhere.
func Moves(v []float64) []Placed { return Placements(v[min(len(v), verdictLen):]) }

// keptLen is how many numbers a kept state is.
const keptLen = 9

// append writes the state as messages carry it, so that ranks can tell another coordinator.
func (k kept) append(v []float64) []float64 {
	u := k.scale.Usual
	return append(v, float64(k.step), float64(k.updates), k.scale.Scale, float64(k.scale.Good),
		float64(k.scale.Left), u.Norm, u.Loss, float64(u.Count), k.scale.Reach)
}

// keptOf is the inverse of append; what does not change in a run is taken from a loss scale of it.
func keptOf(v []float64, s LossScale) kept {
	w := (*[keptLen]float64)(v)
	s.Scale, s.Good, s.Left, s.Usual = w[2], int(w[3]), int(w[4]), Usual{w[5], w[6], int64(w[7])}
	s.Reach = w[8]
	return kept{int64(w[0]), int64(w[1]), s}
}

// keepValues are the numbers of a Keep: the newest step that all have copied, the buddies, and what the coordinator
// holds.
func keepValues(whole int64, buddies []float64, now kept) []float64 {
	return now.append(append([]float64{float64(whole), float64(len(buddies))}, buddies...))
}

// keepOf reads them; what the coordinator holds is passed on as it is.
func keepOf(v []float64) (whole int64, buddies, now []float64) {
	n := 2 + int(v[1])
	return int64(v[0]), v[2:n], v[n:]
}

// keptValues are the numbers of a Kept: the nanoseconds that a copy took.
func keptValues(took float64) []float64 { return []float64{took} }

// tookOf reads them.
func tookOf(v []float64) float64 { return v[0] }

// CreditsOf reads from a Credit how many more messages may come.
func CreditsOf(v []float64) int { return int(v[0]) }

// PutCredits writes that into a list of one number, and returns it.
func PutCredits(v []float64, n int) []float64 {
	v[0] = float64(n)
	return v
}

// Same reports whether two lists are one.
func Same(v, w []float64) bool { return len(v) > 0 && len(w) > 0 && &v[0] == &w[0] }

// Filed is what a checkpoint says of the coordinator.
type Filed struct {
	Updates    int64   // that were applied
	Scale      float64 // loss scale, with its state:
	Good, Left int     // good steps in a row, overflows left before it goes down
	Usual      Usual   // what steps were like
	Reach      float64 // of sums in fixed point
	Laid       Laid    // where experts lie
}

// filedLen is how many numbers it is without Laid.
const filedLen = 8

// FiledOf reads the numbers of a CommitJob.
func FiledOf(v []float64) Filed {
	w := (*[filedLen]float64)(v)
	return Filed{Updates: int64(w[0]), Scale: w[1], Good: int(w[2]), Left: int(w[3]), Usual: Usual{w[4], w[5],
		int64(w[6])}, Reach: w[7], Laid: LaidOf(v[filedLen:])}
}

// Values writes it as numbers.
func (x Filed) Values() []float64 {
	return AppendLaid([]float64{float64(x.Updates), x.Scale, float64(x.Good), float64(x.Left), x.Usual.Norm,
		x.Usual.Loss, float64(x.Usual.Count), x.Reach}, x.Laid)
}

// filed writes what a checkpoint says of a state.
func filed(k kept, x Laid) []float64 {
	return Filed{Updates: k.updates, Scale: k.scale.Scale, Good: k.scale.Good, Left: k.scale.Left,
		Usual: k.scale.Usual, Reach: k.scale.Reach, Laid: x}.Values()
}

// Summary is a TopicStep report. Times are nanoseconds.
type Summary struct {
	Loss     float64 // mean loss of the step
	Norm     float64 // gradient norm
	Overflow bool    // the step was skipped
	LR       float64 // learning rate
	Scale    float64 // loss scale
	Wait     float64 // longest wait of a rank for data
	Peak     float64 // most bytes of a rank
	Time     float64 // from open to the last close
	Slowest  int     // the rank with most busy time
	Slack    float64 // its busy time over the mean, minus 1
	Gap      float64 // the largest of Usage.Gap
}

// SummaryOf reads a TopicStep report.
func SummaryOf(v []float64) Summary {
	w := (*[11]float64)(v)
	return Summary{Loss: w[0], Norm: w[1], Overflow: w[2] != 0, LR: w[3], Scale: w[4], Wait: w[5], Peak: w[6],
		Time: w[7], Slowest: int(w[8]), Slack: w[9], Gap: w[10]}
}

// Values writes it as numbers.
func (x Summary) Values() []float64 {
	return []float64{x.Loss, x.Norm, number(x.Overflow), x.LR, x.Scale, x.Wait, x.Peak, x.Time,
		float64(x.Slowest), x.Slack, x.Gap}
}

// Slowness is a TopicSlow report. Times are nanoseconds a step.
type Slowness struct {
	Rank  int
	Cause Cause
	Now   float64 // that it takes; with SlowStood, those of this step that it stood still for
	// Usual is what it took before, or what ranks take that do the same work; with SlowStood, this step's.
	Usual float64
	Twin  bool    // Usual is that of other ranks
	Had   float64 // processors that its process has during its jobs
	Wants float64 // processors that it had before, or that those of the other ranks have
	// Part is the share of the time that slow steps take longer for, where ordinary ones lie between, or that
	// it stood still for; else 0.
	Part float64
}

// SlownessOf reads a TopicSlow report.
func SlownessOf(v []float64) Slowness {
	w := (*[8]float64)(v)
	return Slowness{Rank: int(w[0]), Cause: Cause(w[1]), Now: w[2], Usual: w[3], Twin: w[4] != 0, Had: w[5],
		Wants: w[6], Part: w[7]}
}

// Values writes it as numbers.
func (x Slowness) Values() []float64 {
	return []float64{float64(x.Rank), float64(x.Cause), x.Now, x.Usual, number(x.Twin), x.Had, x.Wants, x.Part}
}

// EvalLoss reads the evaluation's loss from a TopicEval report. Where there are several validation sets, theirs are
// behind it.
func EvalLoss(v []float64) float64 { return v[0] }

// Stopped reads from a TopicEnd report whether the run ends on request.
func Stopped(v []float64) bool { return v[0] != 0 }

// Copying is a TopicCopied report.
type Copying struct {
	Every float64 // steps until the next copies
	Took  float64 // nanoseconds that these took
}

// CopyingOf reads a TopicCopied report.
func CopyingOf(v []float64) Copying { return Copying{v[0], v[1]} }

// Values writes it as numbers.
func (x Copying) Values() []float64 { return []float64{x.Every, x.Took} }

// Return is a TopicBack report.
type Return struct {
	Took   float64 // nanoseconds since the loss
	Source int32   // where the state came from: FromDisk, FromCopy or FromMember
}

// ReturnOf reads a TopicBack report.
func ReturnOf(v []float64) Return { return Return{v[0], int32(v[1])} }

// Values writes it as numbers.
func (x Return) Values() []float64 { return []float64{x.Took, float64(x.Source)} }

// number is 1 for true.
func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// said is what a rank has said of a step: when it was ready, or at the end.
type said struct {
	come bool // it has said something
	used Usage
	more []float64 // what follows
}

// saidOf reads it; the list is not copied.
func saidOf(v []float64) said { return said{true, UsageOf(v), Behind(v)} }

// claimValues are the numbers of a rank's Holding: what it can tell, and the copies that it has.
func claimValues(last *remembered, copies []copied) []float64 {
	verdict := verdictAlone(last.verdict)
	v := append([]float64{float64(last.pending), number(last.half), number(len(verdict) > 0)}, verdict...)
	for _, x := range copies {
		v = append(append(v, float64(x.of)), x.kept...)
	}
	return v
}

// holdingOf reads them, of a rank that holds the state of a step.
func holdingOf(step int64, v []float64) *holding {
	h := &holding{step: step, pending: int64(v[0]), half: v[1] != 0}
	n := int(v[2])
	v = v[3:]
	for range n {
		h.verdicts, v = append(h.verdicts, v[:verdictLen]), v[verdictLen:]
	}
	for ; len(v) > keptLen; v = v[1+keptLen:] {
		k := v[1 : 1+keptLen]
		h.copies = append(h.copies, copied{of: actors.Ref(v[0]), step: int64(k[0]), kept: k})
	}
	return h
}
