package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/topology/machine"
)

// Limits bound a program; zero fields have usual values.
type Limits struct {
	Memory    int64 // bytes of address space of a process, and of memory of all with the folder's; 0 takes 1 GiB
	Files     int64 // bytes of the folder in memory, and of a file; 0 takes 64 MiB
	Seconds   int   // of processor time; 0 takes 60
	Processes int   // with their threads; root's are bounded in a control group alone, Here to 1,024; 0 takes 64
	// Here begins in the caller's folder, which is read-only, in place of the empty one, /tmp.
	Here bool
}

// usual fills in what is not said.
func (l Limits) usual() Limits {
	for _, x := range []struct {
		at    *int64
		usual int64
	}{{&l.Memory, 1 << 30}, {&l.Files, 64 << 20}} {
		if *x.at == 0 {
			*x.at = x.usual
		}
	}
	if l.Seconds == 0 {
		l.Seconds = 60
	}
	if l.Processes == 0 {
		l.Processes = 64
	}
	return l
}

// word is the first word of a program that is to become another within a sandbox.
const word = "lfactor-sandbox"

// order is what such a program is told.
type order struct {
	Limits Limits
	Words  []string
	Folder string   // where the program begins
	Shown  []string // what is seen below folders that are hidden
	Groups []string // control groups that it joins
	Hidden []string // folders that are empty, but for what is shown
	Drop   bool     // it becomes nobody's, who is root's
}

// Cmd is a program that will run in a sandbox. Its input and outputs are the caller's to set; it is run by Run.
type Cmd struct {
	*exec.Cmd
	order order
}

// Error is what kept a sandbox from beginning, or a program from beginning in it.
type Error struct{ Why string }

// Error implements error.
func (e *Error) Error() string { return "sandbox: " + e.Why }

// Run runs the program. Where the sandbox or the program could not begin it gives an [Error], which no program can
// have it give: it comes over a pipe that is closed when the program begins.
func (c *Cmd) Run() error {
	read, write, err := os.Pipe()
	if err != nil {
		return &Error{err.Error()}
	}
	defer read.Close() //nolint:errcheck // it was read
	group := newGroup(c.order.Limits)
	defer group.remove()
	c.order.Groups = group.dirs
	text, err := json.Marshal(c.order)
	if err != nil {
		return &Error{err.Error()}
	}
	c.Args, c.ExtraFiles = []string{word, string(text)}, []*os.File{write}
	release, err := machine.StartGuarded(c.Cmd)
	write.Close() //nolint:errcheck // the other end is the sandbox's
	if err != nil {
		return &Error{err.Error()}
	}
	defer release()
	why, _ := io.ReadAll(io.LimitReader(read, 4096)) // what was read says it
	err = c.Wait()
	if len(why) > 0 {
		return &Error{string(why)}
	}
	return err
}

// hidden are the folders that a sandbox has empty: files there are seen where the command line names them, or where the
// program begins there.
var hidden = []string{"/tmp", "/run", "/var/run"}

// system are the folders at the root of programs and libraries, which every program may read.
var system = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "opt", "dev", "proc", "sys", "nix",
	"gnu", "snap", "tmp", "run"}

// hiding are the folders that a sandbox has empty: of a program that has nothing to do with the caller's folder all
// but the system's.
func hiding(l Limits) []string {
	out := slices.Clone(hidden)
	if l.Here {
		return out
	}
	list, _ := os.ReadDir("/") // it can be read, or nothing can
	for _, e := range list {
		if e.IsDir() && !slices.Contains(system, e.Name()) {
			out = append(out, "/"+e.Name())
		}
	}
	return out
}

// prefix is the folder that a program is installed in, as its libraries are, by its path; "" for a system's.
func prefix(path string) string {
	top, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if dir := filepath.Dir(filepath.Dir(path)); !slices.Contains(system, top) && dir != "/" {
		return dir
	}
	return ""
}

// covered reports whether a path is below a hidden folder.
func covered(path string, hidden []string) bool {
	for _, h := range hidden {
		if strings.HasPrefix(path, h+"/") || path == h && h != "/tmp" && h != "/run" && h != "/var/run" {
			return true
		}
	}
	return false
}

// shown are the folder and those of the words that name files below hidden folders, shortest first.
func shown(folder string, words, hidden []string) (out []string) {
	for _, w := range append([]string{folder}, words...) {
		if w == "" {
			continue
		}
		if !filepath.IsAbs(w) {
			w = filepath.Join(folder, w)
		}
		real, err := filepath.EvalSymlinks(w)
		if err != nil {
			continue // it names no file
		}
		for _, p := range []string{filepath.Clean(w), real} {
			if covered(p, hidden) && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	return out
}

// Command is a program that will run in a sandbox, in an empty folder or where the caller is;
// all of it ends with the context.
func Command(ctx context.Context, l Limits, words ...string) (*Cmd, error) {
	if len(words) == 0 {
		return nil, errors.New("sandbox: there is no program")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	if words[0], err = exec.LookPath(words[0]); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	o := order{Limits: l.usual(), Words: words, Folder: "/tmp", Hidden: hiding(l), Drop: drops(l)}
	if l.Here {
		if o.Folder, err = os.Getwd(); err != nil {
			return nil, fmt.Errorf("sandbox: %w", err)
		}
		o.Shown = shown(o.Folder, words, o.Hidden)
	} else {
		real, _ := filepath.EvalSymlinks(words[0]) // it has been found
		o.Shown = shown("/tmp", []string{words[0], prefix(words[0]), prefix(real)}, o.Hidden)
	}
	c := exec.CommandContext(ctx, self)
	c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "TMPDIR=/tmp", "LANG=C.UTF-8", "GOMAXPROCS=1"}
	c.WaitDelay = time.Second
	return &Cmd{c, o}, isolate(c, o.Drop)
}

// Check says why this machine has no sandboxes, nil where it has.
func Check() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := Command(ctx, Limits{}, "true")
	if err != nil {
		return err
	}
	if err := c.Run(); err != nil {
		return fmt.Errorf("this machine lets nobody make sandboxes (%s): allow namespaces of users "+
			"(kernel.unprivileged_userns_clone, user.max_user_namespaces, a container's seccomp profile), or judge elsewhere "+
			"by reward.kind: http", strings.TrimPrefix(err.Error(), "sandbox: "))
	}
	return nil
}
