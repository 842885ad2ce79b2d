package run

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/actors/run/record"
)

// trackers opens the sinks of log.trackers.
func (p *reporter) trackers() error {
	l := p.r.cfg.Run.Log
	dir := l.Dir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	sum := sha256.Sum256([]byte(dir + "\n" + p.r.cfg.Run.Checkpoint.Dir))
	o := record.SinkOptions{Dir: l.Dir, First: p.r.start.first, Project: l.Project,
		Name: cmp.Or(l.Name, filepath.Base(dir)), ID: hex.EncodeToString(sum[:4]), Config: p.r.cfg.Flat(),
		Now: time.Now}
	for _, name := range l.Trackers {
		s, err := record.OpenSink(name, o)
		if err != nil {
			return err
		}
		p.sinks = append(p.sinks, s)
	}
	return nil
}

// scalar tells all sinks a figure.
func (p *reporter) scalar(tag string, step int64, v float64) {
	for _, s := range p.sinks {
		s.Scalar(tag, step, v)
	}
}

// closeSinks ends them; what one could not write is said.
func (p *reporter) closeSinks() {
	for _, s := range p.sinks {
		if err := s.Close(p.newest >= int64(p.r.cfg.Run.Train.Steps)); err != nil {
			p.say("! a record of the figures is not whole: %v", err)
		}
	}
}
