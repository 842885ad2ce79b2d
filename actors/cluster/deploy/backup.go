package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// SaveBackup writes a backup to a file, which is there as a whole or not at all.
func SaveBackup(r io.Reader, name string) (int64, error) {
	n := int64(0)
	err := machine.Replace(name, 0o600, func(f *os.File) (err error) {
		n, err = io.Copy(f, r)
		return errors.Join(err, f.Sync())
	})
	return n, err
}

// Restore gives a cluster the state of a backup: its heads, which have to be of this machine, start anew
// with it.
func Restore(c *user.Cluster, backup string) error {
	for _, h := range c.Seats() {
		if h.SSH != "" || !machine.Exists(h.Dir) {
			return exit.With(fmt.Errorf("the head %s of cluster %s is not on this machine, and all "+
				"heads get one "+
				"backup", h.Name, c.Name), exit.Unreachable)
		}
	}
	backup, err := filepath.Abs(backup)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, h := range c.Seats() { // a bad backup ends nothing
		if err := restoreOne(self, h, backup); err != nil {
			return err
		}
	}
	if err := stopHeads(c); err != nil {
		return err
	}
	for i, h := range c.Seats() {
		// one that was started meanwhile has taken it already, and others have not
		if err := restoreOne(self, h, backup); err != nil {
			return err
		}
		err := os.Remove(filepath.Join(h.Dir, control.DownFile))
		if err != nil {
			return err
		}
		if _, err := machine.Detached(h.Dir, append([]string{self},
			control.HeadArgs(h.Dir, c.Heads[i])...)...); err != nil {
			return err
		}
	}
	return nil
}

// restoreOne gives the state of a backup to a head that does not run. The program that serves as a head does
// that: only it knows the store.
func restoreOne(self string, h user.Host, backup string) error {
	c := exec.Command(self, append(control.HeadArgs(h.Dir, ""), "--restore", backup)...)
	var said bytes.Buffer
	c.Stderr = &said
	err := c.Run()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		text := strings.TrimPrefix(strings.TrimSpace(said.String()), "error: ")
		return exit.With(errors.New(text), failed.ExitCode())
	}
	return err
}

// stopHeads ends all heads of this machine and keeps them from being started again.
func stopHeads(c *user.Cluster) error {
	for _, h := range c.Seats() {
		if err := os.WriteFile(filepath.Join(h.Dir, control.DownFile), nil, 0o600); err != nil {
			return err
		}
	}
	for range 2 { // one may have been starting when its turn was
		for _, h := range c.Seats() {
			pid := machine.Holder(h.Dir)
			if pid <= 0 {
				continue
			}
			_ = syscall.Kill(pid, syscall.SIGKILL) // it holds the lock of this cluster's head
			if !ends(pid, 5*time.Second) {
				return fmt.Errorf("process %d, which holds %s, does not end", pid, h.Dir)
			}
		}
	}
	return nil
}
