package cli

import (
	"fmt"
	"io"
	"time"
)

// Progress writes how far a job is, at most once a second and not in its first.
type Progress struct {
	out         io.Writer
	start, last time.Time
	first       int64 // done at the first look: what an earlier run did does not count for the rate
	looked      bool
	all         int64
	bytes       int64
}

// NewProgress is that of a job which begins now.
func NewProgress(out io.Writer) *Progress {
	now := time.Now()
	telling.Lock()
	if telling.now != nil { // that the command is at work need not be said beside it
		telling.now.end()
	}
	telling.Unlock()
	return &Progress{out: out, start: now, last: now}
}

// Show tells done of all units (0: not known), bytes of them (0: not told), and what more says of the time
// since the last line.
func (p *Progress) Show(done, all, bytes int64, more func(wall time.Duration) string) {
	now := time.Now()
	if !p.looked || all != p.all { // another step of the job has a rate of its own
		p.looked, p.first, p.all, p.start = true, done, all, now
	}
	wall := now.Sub(p.last)
	if wall < time.Second {
		return
	}
	p.last = now
	seconds := now.Sub(p.start).Seconds()
	rate := float64(done-p.first) / seconds
	line := fmt.Sprintf("%d", done)
	if all > 0 {
		line = fmt.Sprintf("%d of %d (%d %%)", done, all, 100*done/all)
	}
	if done > p.first {
		line += fmt.Sprintf("  %.0f/s", rate)
	}
	if bytes > 0 {
		line += fmt.Sprintf("  %.0f MB/s", float64(bytes-p.bytes)/1e6/wall.Seconds())
	}
	p.bytes = bytes
	if all > done && rate > 0 {
		line += fmt.Sprintf("  eta %s", time.Duration(float64(all-done)/rate*float64(time.Second)).Round(time.Second))
	}
	fmt.Fprintf(p.out, "%s  %s\n", line, more(wall))
}
