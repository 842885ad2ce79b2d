package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/topology/machine"
)

// Down ends a cluster: its jobs, its agents, its head, and all files of it. A head that does not answer
// is not an obstacle on this machine.
func Down(ctx context.Context, c *user.Cluster, say func(format string, a ...any)) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	// agents go first, since they start a head that is gone again
	dirs := agentDirs(c)
	for _, h := range c.Seats() {
		if h.SSH != "" {
			continue
		}
		dirs = append(dirs, h.Dir)
		if machine.Exists(h.Dir) {
			if err := os.WriteFile(filepath.Join(h.Dir, control.DownFile), nil, 0o600); err != nil {
				return err
			}
		}
	}
	if err := cl.Do(ctx, "POST", "/v1/down", nil, nil); err != nil {
		say("the head does not answer: ending what is here of it (%v)", err)
	}
	if err := endHolders(append(dirs,
		dirs...)); err != nil { // twice: one may have been starting when its turn was
		return err
	}
	if err := downRemote(ctx, c, say); err != nil {
		return err
	}
	err = c.Forget()
	for try := 0; errors.Is(err, syscall.ENOTEMPTY) &&
		try < 50; try++ { // a head that came up late still writes
		time.Sleep(100 * time.Millisecond)
		if err = endHolders(dirs); err == nil {
			err = c.Forget()
		}
	}
	return err
}

// endHolders waits for the processes that hold the directories of a cluster, and ends those that stay.
func endHolders(dirs []string) error {
	for _, dir := range dirs {
		if pid := machine.Holder(dir); pid > 0 && !ends(pid, 3*time.Second) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it holds a lock of this cluster
			if !ends(pid, 3*time.Second) {
				return fmt.Errorf("process %d, which holds %s, does not end", pid, dir)
			}
		}
	}
	return nil
}

// agentDirs are the directories of the agents on this machine; those behind SSH lie elsewhere.
func agentDirs(c *user.Cluster) (out []string) {
	for _, h := range c.Hosts {
		if h.SSH == "" {
			out = append(out, h.Dir)
		}
	}
	return out
}

// ends waits until a process has ended; one that nobody has reaped has.
func ends(pid int, limit time.Duration) bool {
	for until := time.Now().Add(limit); time.Now().Before(until); <-time.After(10 * time.Millisecond) {
		if ended(pid) {
			return true
		}
	}
	return false
}

// ended reports whether a process is no more, or waits to be reaped. So does, for a moment, the first thread of one that another
// of its threads makes a new program of, as the head's: then it has more threads than one (proc_pid_stat(5), num_threads).
func ended(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	return syscall.Kill(pid, 0) != nil || err == nil && len(f) > 17 && f[0] == "Z" && f[17] < "2"
}
