package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// group is a control group of a sandbox, which bounds the memory and the processes of all of it together:
// limits of resources are of each process.
type group struct{ dirs []string }

var groups atomic.Int64

// mounted is where control groups are.
const mounted = "/sys/fs/cgroup"

// here are more processes than those of a command that its user trusts.
const here = 1024

// newGroup makes one where this process may, in its own: of the second version, or of the first's memory and
// pids. It is empty where there is none to be had.
func newGroup(l Limits) *group {
	text, _ := os.ReadFile("/proc/self/cgroup") // without it there is none
	return groupOf(l, mounted, string(text))
}

func groupOf(l Limits, root, own string) *group {
	g := &group{}
	name := fmt.Sprintf("lfactor-%d-%d", os.Getpid(), groups.Add(1))
	most := l.Processes
	if l.Here {
		most = here
	}
	memory := strconv.FormatInt(l.Memory+l.Files, 10)
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, kind := range strings.Split(parts[1], ",") {
			base := filepath.Join(root, parts[1], parts[2], name)
			switch kind {
			case "memory":
				g.make(base, "memory.limit_in_bytes", memory, "memory.memsw.limit_in_bytes", memory)
			case "pids":
				g.make(base, "pids.max", strconv.Itoa(most))
			case "":
				g.make(filepath.Join(root, parts[2], name), "memory.max", memory, "pids.max", strconv.Itoa(most),
					"memory.swap.max", "0", "memory.oom.group", "1")
			}
		}
	}
	return g
}

// make makes a folder of a group and writes its bounds: the first of them has to be there, further ones may be.
func (g *group) make(dir string, bounds ...string) {
	if os.Mkdir(dir, 0o755) != nil {
		return // it is not this process's
	}
	for i := 0; i < len(bounds); i += 2 {
		err := write(filepath.Join(dir, bounds[i]), bounds[i+1])
		if err != nil && i == 0 {
			_ = os.Remove(dir) // nothing is in it
			return
		}
	}
	g.dirs = append(g.dirs, dir)
}

// write writes a file that is there: a folder that is none of a group's has none.
func write(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// join has this process, and those that it begins, in a group.
func join(dirs []string) error {
	var all error
	for _, d := range dirs {
		all = errors.Join(all, write(filepath.Join(d, "cgroup.procs"), "0"))
	}
	return all
}

// leaves bounds the time in which what was in a group ends, whose first process has ended.
const leaves = time.Second

// remove takes a group away when all in it have ended, which ends with their first process.
func (g *group) remove() {
	for _, d := range g.dirs {
		for until := time.Now().Add(leaves); os.Remove(d) != nil && time.Now().Before(until); {
			time.Sleep(time.Millisecond)
		}
	}
}
