package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// The system kills processes for want of memory as anybody does with SIGKILL; but it counts whom it killed,
// in a control group and in all.

// killed is how many processes the system has killed for want of memory.
type killed struct{ group, all int64 }

// kills reads the counters of this process's control group and of the machine, below root.
func kills(root string) (k killed) {
	for mount, group := range memoryGroups(root) {
		for _, file := range []string{"memory.oom_control", "memory.events"} {
			k.group = max(k.group, counter(filepath.Join(root, mount, group, file)))
		}
	}
	return killed{k.group, counter(filepath.Join(root, "proc/vmstat"))}
}

// counter reads the value of oom_kill from a file of names and values. It is 0 if the file does not name it.
func counter(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			n, _ := strconv.ParseInt(v, 10, 64) // 0 for what is no number
			return n
		}
	}
	return 0
}

// Children says how child processes ended. It is made before the first of them is started.
type Children struct {
	root string
	mu   sync.Mutex
	seen killed // of these the ends are known
}

// NewChildren begins to count what the system kills.
func NewChildren() *Children { return &Children{root: "/", seen: kills("/")} }

// End says how a process ended that was waited for with a result, and with which exit code: "ended with exit
// code 1"; -1 is a signal's, "was killed by signal 9 (killed)", followed by the reason where it was the
// system that had no memory left.
func (c *Children) End(s *os.ProcessState, waited error) (text string, code int) {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		text = fmt.Sprintf("was killed by signal %d (%v)", int(w.Signal()), w.Signal())
		if w.Signal() == syscall.SIGKILL {
			text += c.forMemory()
		}
		return text, -1
	}
	if code = s.ExitCode(); code == 0 && waited != nil {
		return waited.Error(), 1
	}
	return fmt.Sprintf("ended with exit code %d", code), code
}

// forMemory says that the system has killed one process more for want of memory than ends are known of, or
// "". Of two processes that are killed at a time each takes one.
func (c *Children) forMemory() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := kills(c.root)
	group, all := now.group > c.seen.group, now.all > c.seen.all
	c.seen.group += min(1, now.group-c.seen.group)
	c.seen.all += min(1, now.all-c.seen.all)
	const remedy = "give the run less to hold (plan.memory, train.micro_batch, more ranks) or it more memory"
	switch {
	case group && MemoryLimit(c.root) < MachineMemory(c.root):
		return fmt.Sprintf(" by the system: its control group had used the %.0f MiB that it may have; %s",
			float64(MemoryLimit(c.root))/(1<<20), remedy)
	case group || all:
		return " by the system, which had no memory left; " + remedy
	}
	return ""
}
