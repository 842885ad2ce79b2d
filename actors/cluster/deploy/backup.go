package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/store"
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
// with it, and serve it when this returns. After an error before that they go on with what they had.
func Restore(ctx context.Context, c *user.Cluster, backup string) error {
	for _, h := range c.Seats() {
		if h.SSH != "" || !machine.Exists(h.Dir) {
			return exit.With(fmt.Errorf("the head %s of cluster %s is not on this machine, and all heads get one "+
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
	tried, err := os.MkdirTemp("", "lfactor-restore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tried)                                                  //nolint:errcheck // it is in the system's folder for such
	if err := restoreOne(self, user.Host{Dir: tried}, backup, 0); err != nil { // a bad backup ends nothing
		return err
	}
	if err := stopHeads(c); err != nil {
		return errors.Join(err, startHeads(self, c))
	}
	err = adopt(self, c, backup)
	if err = errors.Join(err, startHeads(self, c)); err != nil {
		return err
	}
	return serves(ctx, c)
}

// adopt makes the state of a backup for all heads, which do not run, or for none.
func adopt(self string, c *user.Cluster, backup string) error {
	var dirs []string
	above := int64(0)
	for _, h := range c.Seats() {
		dirs = append(dirs, h.Dir)
		above = max(above, store.LastTerm(filepath.Join(h.Dir, "store")))
	}
	if err := head.ShareRevoked(dirs); err != nil {
		return err
	}
	for _, h := range c.Seats() {
		if err := restoreOne(self, h, backup, above); err != nil {
			for _, other := range c.Seats() {
				err = errors.Join(err, os.RemoveAll(filepath.Join(other.Dir, "store", "restored")))
			}
			return err
		}
	}
	return nil
}

// startHeads starts the heads that stopHeads has ended.
func startHeads(self string, c *user.Cluster) (err error) {
	for i, h := range c.Seats() {
		if e := os.Remove(filepath.Join(h.Dir, control.DownFile)); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
			continue
		}
		_, e := machine.Detached(h.Dir, append([]string{self}, control.HeadArgs(h.Dir, c.Heads[i])...)...)
		err = errors.Join(err, e)
	}
	return err
}

// servesWithin is how long heads may take until they serve a restored state.
const servesWithin = 90 * time.Second

// serves waits until the cluster answers.
func serves(ctx context.Context, c *user.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, servesWithin)
	defer cancel()
	for {
		client, err := c.Client()
		if err == nil {
			err = client.Do(ctx, "GET", "/v1/status", nil, nil)
		}
		if err == nil {
			return nil
		}
		if machine.Pause(ctx, 100*time.Millisecond) != nil {
			return exit.With(fmt.Errorf("the backup is in place, and the heads do not serve it within %v: %w. What they had "+
				"before is in %s", servesWithin, err, filepath.Join(c.Head.Dir, "store", "etcd-before-*")), exit.Corrupt)
		}
	}
}

// restoreOne gives the state of a backup to a head that does not run. The program that serves as a head does
// that: only it knows the store.
func restoreOne(self string, h user.Host, backup string, above int64) error {
	c := exec.Command(self, append(control.HeadArgs(h.Dir, ""), "--restore", backup, "--above", strconv.FormatInt(above, 10))...)
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
