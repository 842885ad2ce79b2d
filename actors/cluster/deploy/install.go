package deploy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/topology/machine"
)

// startLimit is how long head or agent may take until they serve.
const startLimit = 30 * time.Second

// Receive is the end of Up.install on a host: it makes the directory with its files and starts what
// works in it. It refuses where an agent of a cluster runs already.
func Receive(in io.Reader, self string) error {
	var i Install
	if err := json.NewDecoder(in).Decode(&i); err != nil {
		return fmt.Errorf("the order to install: %w", err)
	}
	if filepath.Base(filepath.Dir(i.Dir)) == "agents" {
		unlock, err := alone(filepath.Dir(i.Dir))
		if err != nil {
			return err
		}
		defer unlock()
		// a folder with odd characters keeps old versions
		others, _ := filepath.Glob(filepath.Join(filepath.Dir(i.Dir), "*"))
		for _, d := range others {
			if pid := machine.Holder(d); pid > 0 {
				return fmt.Errorf("an agent of cluster %s %s, pid %d: `lfactor cluster down %s` where "+
					"that was brought up",
					filepath.Base(d), runsAlready, pid, filepath.Base(d))
			}
		}
	}
	if pid := machine.Holder(i.Dir); pid > 0 {
		return fmt.Errorf("the head of a cluster %s %s, pid %d: give this one another name, or `lfactor "+
			"cluster down %[1]s` where that was brought up",
			filepath.Base(i.Dir), runsAlready, pid)
	}
	if err := os.MkdirAll(i.Dir, 0o700); err != nil {
		return err
	}
	old, err := os.ReadDir(i.Dir) // what a cluster that is gone has left
	for _, e := range old {
		err = errors.Join(err, os.RemoveAll(filepath.Join(i.Dir, e.Name())))
	}
	if err != nil {
		return err
	}
	for name, text := range i.Files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("%q is not a file of %s", name, i.Dir)
		}
		if err := os.WriteFile(filepath.Join(i.Dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return startAndWait(i.Dir, append([]string{self}, i.Args...))
}

// runsAlready marks refusals for the sake of another cluster, of which nothing may be undone.
const runsAlready = "runs there already"

// alone waits until nobody else starts an agent on this host.
func alone(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

// startAndWait starts head or agent and waits until it serves.
func startAndWait(dir string, command []string) error {
	pid, err := machine.Detached(dir, command...)
	if err != nil {
		return err
	}
	for until := time.Now().Add(startLimit); time.Now().Before(until); <-time.After(10 * time.Millisecond) {
		if text, err := os.ReadFile(filepath.Join(dir, control.UpFile)); err == nil &&
			strings.TrimSpace(string(text)) == strconv.Itoa(pid) {
			return nil
		}
		if ends(pid, time.Millisecond) {
			return errors.New(lastLine(filepath.Join(dir, "log")))
		}
	}
	return fmt.Errorf("process %d does not serve within %v: %s", pid, startLimit, lastLine(filepath.Join(dir, "log")))
}

// lastLine is the last line of a log file, which usually says why a program ended; it is the
// reading error if there is no file.
func lastLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return cmp.Or(strings.TrimPrefix(lines[len(lines)-1], "error: "), "nothing was written to "+file)
}

// Uninstall ends what works in directories and removes them.
func Uninstall(dirs []string) error {
	var faults []error
	for _, dir := range dirs {
		if pid := machine.Holder(dir); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it holds the lock of a cluster's directory
			if !ends(pid, 5*time.Second) {
				faults = append(faults, fmt.Errorf("process %d, which holds %s, does not end", pid, dir))
				continue
			}
		}
		faults = append(faults, os.RemoveAll(dir))
	}
	return errors.Join(faults...)
}
