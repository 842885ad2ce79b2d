package machine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The system kills processes for want of memory as anybody does with SIGKILL. That it was the system is said
// on evidence alone: its log names the process, at a time when it lived; or, where the log names nobody, the
// counter of the process's own control group has risen while it lived. What the system did elsewhere on the
// machine says nothing of it.

// begun is what is known of a process from when it began.
type begun struct {
	at     time.Duration // since the machine began
	groups []string      // folders of its control groups
	kills  int64         // for want of memory, in those
}

// kills is how many processes the system has killed for want of memory in control groups, not in those below.
func kills(groups []string) (n int64) {
	for _, group := range groups {
		for _, file := range []string{"memory.oom_control", "memory.events.local"} {
			n = max(n, counter(filepath.Join(group, file)))
		}
	}
	return n
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

// killedLine is what the log says of a process that was killed for want of memory.
var killedLine = regexp.MustCompile(`^\d+,\d+,(\d+),[^;]*;.*[Oo]ut of memory.*: Killed process (\d+) `)

// killed are the processes that the system's log names as killed for want of memory since a time.
func (c *Children) killed(since time.Duration) (pids []int) {
	for _, line := range c.log() {
		m := killedLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		micros, _ := strconv.ParseInt(m[1], 10, 64) // digits
		if pid, err := strconv.Atoi(m[2]); err == nil && time.Duration(micros)*time.Microsecond >= since {
			pids = append(pids, pid)
		}
	}
	return pids
}

// kernelLog reads the system's log as far as it goes, a line a record; none where it may not be read.
func kernelLog() (lines []string) {
	fd, err := syscall.Open("/dev/kmsg", syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	for b := make([]byte, 8<<10); ; {
		n, err := syscall.Read(fd, b)
		switch {
		case err == syscall.EPIPE: // records were overwritten meanwhile: the next read goes on behind them
		case err != nil || n <= 0:
			return lines
		default:
			line, _, _ := bytes.Cut(b[:n], []byte("\n"))
			lines = append(lines, string(line))
		}
	}
}

// uptime is the time since the machine began, 0 where it is not known.
func uptime(root string) time.Duration {
	var s float64
	text, err := os.ReadFile(filepath.Join(root, "proc/uptime"))
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(text), &s); err != nil {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// Children says how child processes ended.
type Children struct {
	root  string
	log   func() []string
	mu    sync.Mutex
	alive map[int]begun    // by process
	taken map[string]int64 // by control group: of the kills that it counts, how many ends were put down to it
}

// NewChildren begins to look after processes.
func NewChildren() *Children {
	return &Children{root: "/", log: kernelLog, alive: map[int]begun{}, taken: map[string]int64{}}
}

// Began takes in a process that was started. Without it nothing is said of the system.
func (c *Children) Began(pid int) {
	b := begun{at: uptime(c.root)}
	for mount, group := range memoryGroups(c.root, strconv.Itoa(pid)) { //lfvet:order sorted below
		b.groups = append(b.groups, filepath.Join(c.root, mount, group))
	}
	slices.Sort(b.groups)
	b.kills = kills(b.groups)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alive[pid] = b
}

// End says how a process ended that was waited for with a result, and with which exit code: "ended with exit
// code 1"; -1 is a signal's, "was killed by signal 9 (killed)", followed by the reason where it is shown
// that the system had no memory left.
func (c *Children) End(s *os.ProcessState, waited error) (text string, code int) {
	c.mu.Lock()
	b, known := c.alive[s.Pid()]
	delete(c.alive, s.Pid())
	c.mu.Unlock()
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		text = fmt.Sprintf("was killed by signal %d (%v)", int(w.Signal()), w.Signal())
		if w.Signal() == syscall.SIGKILL && known {
			text += c.forMemory(s.Pid(), b)
		}
		return text, -1
	}
	if code = s.ExitCode(); code == 0 && waited != nil {
		return waited.Error(), 1
	}
	return fmt.Sprintf("ended with exit code %d", code), code
}

// forMemory says that the system has killed a process for want of memory, or "" where nothing shows that. Of
// several that are killed in one control group at a time, where the log names none, each takes one of the
// kills that the group has counted.
func (c *Children) forMemory(pid int, b begun) string {
	named, others := false, false
	for _, k := range c.killed(b.at) {
		named, others = named || k == pid, true
	}
	group := c.counted(b)
	const remedy = "give the run less to hold (plan.memory, train.micro_batch, more ranks) or it more memory"
	switch {
	case !named && (others || !group):
		return ""
	case group && MemoryLimit(c.root) < MachineMemory(c.root):
		return fmt.Sprintf(" by the system: its control group had used the %.0f MiB that it may have; %s",
			float64(MemoryLimit(c.root))/(1<<20), remedy)
	}
	return " by the system, which had no memory left; " + remedy
}

// counted reports whether a process's control group has counted a kill while the process lived that no other
// end was put down to.
func (c *Children) counted(b begun) bool {
	now := kills(b.groups)
	key := strings.Join(b.groups, " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	if now <= max(b.kills, c.taken[key]) {
		return false
	}
	c.taken[key] = max(b.kills, c.taken[key]) + 1
	return true
}
