package deploy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/actors/process"
)

// SaveBackup writes a backup to a file, which is there as a whole or not at all.
func SaveBackup(r io.Reader, name string) (int64, error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".backup-*")
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(f, r)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what came of it is not a backup
	}
	return n, err
}

// Restore gives a cluster the state of a backup: its head, which has to be of this machine, starts anew
// with it.
func Restore(c *user.Cluster, backup string) error {
	if c.Head.SSH != "" || !process.Exists(c.Head.Dir) {
		return exit.With(fmt.Errorf("the head of cluster %s is not on this machine: copy the backup to its "+
			"host and restore there", c.Name),
			exit.Unreachable)
	}
	if err := store.Restore(backup, filepath.Join(c.Head.Dir, "store")); err != nil {
		return exit.With(err, exit.Corrupt)
	}
	if pid := process.Holder(c.Head.Dir); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it holds the lock of this cluster's head
		if !ends(pid, 5*time.Second) {
			return fmt.Errorf("process %d, which holds %s, does not end", pid, c.Head.Dir)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = process.Detached(c.Head.Dir, append([]string{self},
		control.HeadArgs(c.Head.Dir, c.Heads[0])...)...)
	return err
}
