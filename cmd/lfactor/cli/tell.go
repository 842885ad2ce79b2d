package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// progressAfter is when a command that is still at work says so for the first time.
const progressAfter = 2 * time.Second

// progressEvery is the time between two lines of progress, which LFACTOR_PROGRESS_EVERY changes: a duration, as in 10s
// for a log. From the first line on with less than a second everything that is told is printed, for tests.
func progressEvery() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("LFACTOR_PROGRESS_EVERY")); err == nil && d > 0 {
		return d
	}
	return progressAfter
}

// teller says on stderr what a command does, however long one piece of it takes.
type teller struct {
	mu          sync.Mutex
	out         io.Writer
	began       time.Time
	part        time.Time // when the first piece of what is done now began
	what        string
	first       int
	done, all   int
	every       time.Duration
	said, ended bool
	stop        chan struct{}
}

// telling is the command's only one: what a command says of itself takes the place of that it is at work.
var telling struct {
	sync.Mutex
	now *teller
}

// Tell begins to say on out what a command does: every two seconds, not in its first two. See is told the newest: what is
// done, how much of it, and of how much, 0 where that is not known. The second function ends it.
func Tell(out io.Writer, what string) (see func(what string, done, all int), end func()) {
	t := &teller{out: out, began: time.Now(), part: time.Now(), what: what, every: progressEvery(), stop: make(chan struct{})}
	telling.Lock()
	before := telling.now
	telling.now = t
	telling.Unlock()
	if before != nil {
		before.end()
	}
	go t.run()
	return t.see, t.end
}

func (t *teller) run() {
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for {
		select {
		case <-t.stop:
			return
		case <-tick.C:
			t.mu.Lock()
			t.say()
			t.mu.Unlock()
		}
	}
}

// see takes in how far the command is.
func (t *teller) see(what string, done, all int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if what != t.what || all != t.all || done < t.done { // another piece has a rate of its own
		t.part, t.first = time.Now(), done
	}
	t.what, t.done, t.all = what, done, all
	if t.every < time.Second {
		t.say()
	}
}

// say writes a line. The lock is held.
func (t *teller) say() {
	if t.ended {
		return
	}
	t.said = true
	now := time.Now()
	line := t.what
	if t.all > 0 {
		line += fmt.Sprintf("  %d of %d (%d %%)", t.done, t.all, 100*t.done/t.all)
	} else if t.done > 0 {
		line += fmt.Sprintf("  %d", t.done)
	}
	if spent := now.Sub(t.part).Seconds(); t.done > t.first && spent > 0 {
		rate := float64(t.done-t.first) / spent
		line += fmt.Sprintf("  %.3g/s", rate)
		if left := time.Duration(float64(t.all-t.done) / rate * float64(time.Second)); t.all > t.done {
			line += fmt.Sprintf("  eta %v", left.Round(time.Second))
		}
	}
	fmt.Fprintf(t.out, "%s  after %v\n", line, now.Sub(t.began).Round(time.Second))
}

// end says nothing any more.
func (t *teller) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended = true
		close(t.stop)
	}
}

// ownProgress marks commands that say by themselves what they do, or whose work is to wait for others.
const ownProgress = "progress"

// OwnProgress marks a command, and all below it, as one that says by itself what it does.
func OwnProgress(c *cobra.Command) *cobra.Command {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[ownProgress] = "own"
	return c
}

// OwnsProgress reports whether a command is marked, or one above it.
func OwnsProgress(c *cobra.Command) bool {
	for ; c != nil; c = c.Parent() {
		if c.Annotations[ownProgress] != "" {
			return true
		}
	}
	return false
}

// busy lets a command that says nothing by itself say that it is at work.
func busy(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if OwnsProgress(c) {
			return run(c, args)
		}
		_, end := Tell(c.ErrOrStderr(), c.CommandPath())
		defer end()
		return run(c, args)
	}
}
