package core

import (
	"strings"

	"github.com/lfactor/lfactor/actors"
)

// What always holds here (doc.go says how the lines read):
//
//   D-1: At most one save is under way, and it is of a state between steps. Shown by 04_save, watched by
//     Monitor.bookSave, broken by "two saves at a time".
//   D-2: A checkpoint is committed only when all ranks have written their parts. Shown by 04_save, watched
//     by Monitor.bookSave, broken by "committed when all but one have written".
//   D-3: Nobody is sent back to a checkpoint that another, which is being committed, may replace. Shown by
//     23_lost_while_committed, watched by Monitor.seeCommit, broken by "goes back while a checkpoint is committed".

// A checkpoint is made in four stages, one checkpoint at a time:
//
//	noSave ──save: BeginJob──▶ makingRoom ──Done: Save to all──▶ ranksWrite ──all Durable──▶ committing
//	   ▲                           │ error                          │ epoch ends            Done │
//	   └───────────────────────────┴────────────────────────────────┴────────────────────────────┘
//
// No step is opened before all ranks have copied their state (Queued); writing goes on beside the steps.
// What an epoch leaves before committing is void and due again. What is being committed is waited for, since
// the checkpoint that it replaces may be gone.

// saveStage is how far the save under way is.
type saveStage uint8

const (
	noSave saveStage = iota
	makingRoom
	ranksWrite
	committing
)

// saving is the save under way, and the one that is due.
type saving struct {
	stage  saveStage
	due    bool // as soon as no other is under way and no step is open
	saved  kept // what the coordinator held when it began
	queued int  // ranks that have not copied their state
	parts  []string
	unsent int          // ranks whose part is not written
	job    actors.JobID // the one under way
	jobs   actors.JobID // the last that there was
}

// save begins the save that is due. It is called between steps only, when no rank changes its state; one
// save is under way at a time, so that a due one may wait for the end of a later step.
func (c *Coordinator) save(ctx actors.Context) {
	if !c.due || c.stage != noSave || c.phase.lost() {
		return
	}
	c.due, c.stage, c.queued, c.unsent = false, makingRoom, len(c.l.Ranks), len(c.l.Ranks)
	c.parts = make([]string, len(c.l.Ranks))
	c.saved, c.moves.saving = c.now(), c.moves.now
	c.jobs++
	c.job = c.jobs
	ctx.Do(actors.Job{ID: c.job, Kind: actors.BeginJob, Engine: actors.IO, Step: c.step})
}

// requestSnapshots asks the ranks to copy their state once there is a place to write it.
func (c *Coordinator) requestSnapshots(ctx actors.Context, m *actors.Message) {
	if m.Err != nil {
		c.queued = 0
		c.committed(ctx, m)
		c.advance(ctx)
		return
	}
	c.stage = ranksWrite
	for i, r := range c.l.Ranks {
		m := actors.Message{Kind: actors.Save, Epoch: c.epoch, Step: c.saved.step, Member: int32(r)}
		if c.away[i] {
			by, of := c.giver(i)
			r, m.Segment, m.Port = c.l.Ranks[by], c.back.source, int32(c.l.Ranks[of])
		}
		ctx.Send(r, m)
	}
}

// written collects the ranks' parts of the manifest, whoever has written them; with the last one the
// checkpoint is committed.
func (c *Coordinator) written(ctx actors.Context, m *actors.Message) {
	if i, ok := c.place[actors.Ref(m.Member)]; ok {
		c.parts[i] = m.Text
	}
	if c.unsent--; c.unsent == 0 {
		c.stage = committing
		c.jobs++
		c.job = c.jobs
		ctx.Do(actors.Job{ID: c.job, Kind: actors.CommitJob, Engine: actors.IO,
			Step: c.saved.step, Text: strings.Join(c.parts, "\x00"), Values: filed(c.saved, c.moves.saving)})
	}
}

// committed is the one place where a checkpoint becomes durable.
func (c *Coordinator) committed(ctx actors.Context, m *actors.Message) {
	topic := TopicDurable
	if m.Err != nil {
		topic = TopicSaveLost
	} else {
		c.kept = c.saved
		c.moves.durable = c.moves.saving
	}
	ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: topic, Step: c.saved.step, Err: m.Err})
	c.stage = noSave
	switch {
	case c.phase.lost():
		c.goBack(ctx)
	case c.phase == ending:
		c.finish(ctx)
	}
}
