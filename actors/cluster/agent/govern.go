package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/topology/machine"
)

// A job of a submitter is held to the directories that an administrator has given its user, and to a folder of its own,
// by the kernel (machine.Confinement). Where the agent is root, the job runs as a user of the system besides.

// ConfinedWord is the subcommand of lfactor cluster by which such a program begins: its first argument is a
// machine.Confinement, and what follows the command line that it becomes.
const ConfinedWord = "confined"

// firstUser is the first number of an account of a person, ownUsers where the numbers begin that users get
// who have none.
const (
	firstUser = 1000
	ownUsers  = 1 << 30
)

// asWhom is the user of the system that jobs of a submitter run as: the account of that name, if it is a person's, else
// a number that no account has and that is the same on all hosts. It is 0, the agent itself, where that is not root.
func asWhom(name string, root bool) (uid, gid int) {
	if !root {
		return 0, 0
	}
	if u, err := user.Lookup(name); err == nil {
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil && uid >= firstUser && gid >= firstUser {
			return uid, gid
		}
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	n := ownUsers + int(h.Sum32()>>3)
	return n, n
}

// root says whether the agent is root; a test says otherwise.
var root = func() bool { return os.Geteuid() == 0 }

// whoRuns says at the agent's start who submitters' jobs run as.
func whoRuns() string {
	held := "held to their directories by the kernel"
	switch err := machine.Confines(); {
	case root() && err == nil:
		return "jobs of submitters run as users of their names, " + held
	case root():
		return "jobs of submitters run as users of their names; " + err.Error()
	case err == nil:
		return fmt.Sprintf("this agent is not root: jobs of submitters run as itself, user %d, %s, and start no programs "+
			"of their own", os.Getuid(), held)
	}
	return "jobs of submitters do not run here: this agent is not root, and " + machine.Confines().Error()
}

// folders is where jobs have folders of their own: the agent's directory, or, where they run as other users,
// a place that these can reach, which nobody but root has made.
func (a *Agent) folders() (string, error) {
	if !root() {
		dir := filepath.Join(a.o.Dir, "jobs")
		return dir, os.MkdirAll(dir, 0o700)
	}
	h := fnv.New64a()
	h.Write([]byte(a.o.Dir))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("lfactor-jobs-%x", h.Sum64()))
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// own is the folder of a job, which is made if it is missing.
func (a *Agent) own(job string, uid, gid int) (*os.Root, error) {
	if !filepath.IsLocal(job) || strings.ContainsRune(job, filepath.Separator) {
		return nil, fmt.Errorf("%q is no name of a job", job)
	}
	dir := filepath.Join(a.jobs, job)
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
	case err != nil:
		return nil, err
	case uid > 0:
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, err
		}
	}
	return os.OpenRoot(dir)
}

// put writes a file of a job's folder for its user alone. Whatever links the user has made there, the file is
// in the folder.
func put(own *os.Root, name string, text []byte, uid, gid int) error {
	if dir := filepath.Dir(name); dir != "." {
		if err := own.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := own.Lchown(dir, max(uid, os.Getuid()), max(gid, os.Getgid())); err != nil {
			return err
		}
	}
	fresh := name + ".new" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(turn.Add(1), 10)
	f, err := own.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if uid > 0 {
		err = errors.Join(err, f.Chown(uid, gid))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = own.Rename(fresh, name)
	}
	return err
}

// confinement is what a job of a submitter may touch on this host.
func (a *Agent) confinement(s *control.Spec, own *os.Root, uid, gid int) (c machine.Confinement, err error) {
	c = machine.Confinement{UID: uid, GID: gid, Dir: s.Dir}
	if own != nil {
		c.Write = []string{own.Name()}
	}
	if err := machine.Confines(); err != nil && uid == 0 {
		return c, fmt.Errorf("%s has the role %s, and this agent is not root: %w", s.User, s.Role, err)
	}
	for _, d := range append([]string{s.Dir, s.Log}, s.Keep...) { // the head has looked already
		if d != "" && !control.Within(d, s.Dirs) {
			return c, fmt.Errorf("%s is in no directory of %s's", d, s.User)
		}
	}
	for _, d := range s.Dirs {
		if err := a.given(d, uid, gid); err != nil {
			return c, err
		}
		c.Write = append(c.Write, d)
	}
	return c, nil
}

// given makes a directory of a user's ready, and refuses one that has, or is in, what the cluster keeps for
// itself on this host: its keys would be the user's.
func (a *Agent) given(dir string, uid, gid int) error {
	real := func(name string) string {
		if to, err := filepath.EvalSymlinks(name); err == nil {
			return to
		}
		return filepath.Clean(name)
	}
	ours := []string{a.o.Dir, os.Getenv("LFACTOR_HOME")}
	for _, l := range a.o.Local {
		ours = append(ours, l.Dir)
	}
	if home, err := os.UserHomeDir(); err == nil {
		ours = append(ours, filepath.Join(home, ".lfactor"), filepath.Join(home, ".ssh"))
	}
	for _, o := range ours {
		if o != "" && (control.Within(real(o), []string{real(dir)}) || control.Within(real(dir), []string{real(o)})) {
			return fmt.Errorf("%s is no directory for jobs on this host: keys of the cluster or of its owner are in %s", dir, o)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil && uid > 0 {
		err = os.Chown(dir, uid, gid)
	}
	return err
}

// kept are variables of the agent that a submitter's job gets: those of others may be secrets.
var kept = []string{"PATH", "LANG", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GOMAXPROCS",
	"GOMEMLIMIT", "GOGC"}

// led are variables that the process which leads a job gives the others.
var led = []string{"LFACTOR_PROC", "LFACTOR_AGAIN", "LFACTOR_SAMPLER", "LFACTOR_JUDGE", "LFACTOR_FAULT"}

// command is a command line of lfactor as a job of a submitter runs it.
func (a *Agent) command(s *control.Spec, c machine.Confinement, env []string, words ...string) (*exec.Cmd, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	line := append(slices.Clone(a.o.Command[1:]), "cluster", ConfinedWord, string(text))
	line = append(append(line, a.o.Command...), words...)
	x := exec.Command(a.o.Command[0], line...)
	x.Dir = "/" // it goes to its own as the user that it becomes
	home := s.Dir
	if len(c.Write) > 0 {
		home = c.Write[0]
	}
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); slices.Contains(kept, name) {
			x.Env = append(x.Env, e)
		}
	}
	x.Env = append(append(x.Env, s.Env...), "HOME="+home, "TMPDIR="+home)
	for _, e := range env {
		if name, _, _ := strings.Cut(e, "="); slices.Contains(led, name) {
			x.Env = append(x.Env, e)
		}
	}
	if c.UID == 0 { // a program of the user's would be the agent's, but for directories
		x.Env = append(x.Env, configs.EnvGoverned+"=1")
	}
	return x, nil
}

// shareIdentity gives jobs of submitters, which do not reach the agent's directory, what shows who they are,
// also when it has changed; the lock is held.
func (a *Agent) shareIdentity() {
	for job, who := range a.owners {
		own, err := a.own(job, who[0], who[1])
		if err == nil {
			err = errors.Join(a.putIdentity(own, who[0], who[1]), own.Close())
		}
		if err != nil {
			a.logf("the identity for job %s: %v", job, err)
		}
	}
}

const identityDir = "identity"

func (a *Agent) putIdentity(own *os.Root, uid, gid int) error {
	files, err := a.id.Files()
	if err != nil {
		return err
	}
	for name, text := range files { //lfvet:order each for itself
		if err := put(own, filepath.Join(identityDir, name), text, uid, gid); err != nil {
			return err
		}
	}
	return nil
}
