package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nobody is the user on the machine that root's programs become, and other is who that is within.
const nobody, other = 65534, 1

// drops reports whether a program becomes nobody's: root's that need not read the caller's folder, where the
// machine has a nobody.
func drops(l Limits) bool {
	text, _ := os.ReadFile("/proc/self/uid_map") // without it nobody is known
	var inside, outside, n int64
	_, err := fmt.Sscan(string(text), &inside, &outside, &n)
	return os.Getuid() == 0 && !l.Here && err == nil && inside == 0 && n > nobody
}

// isolate has a program begin in namespaces of its own, as their root.
func isolate(c *exec.Cmd, drop bool) error {
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS |
		unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	if drop {
		a := c.SysProcAttr
		a.UidMappings = append(a.UidMappings, syscall.SysProcIDMap{ContainerID: other, HostID: nobody, Size: 1})
		a.GidMappings = append(a.GidMappings, syscall.SysProcIDMap{ContainerID: other, HostID: nobody, Size: 1})
		a.GidMappingsEnableSetgroups = true
	}
	return nil
}

// told is the descriptor to which a sandbox says why it could not begin.
const told = 3

func init() {
	if len(os.Args) == 2 && os.Args[0] == word {
		runtime.LockOSThread() // privileges are a thread's
		unix.CloseOnExec(told)
		err := become(os.Args[1])
		fmt.Fprint(os.NewFile(told, "told"), err) //nolint:errcheck // whoever listens has gone
		os.Exit(125)
	}
}

// become sets the bounds and turns into the program that was asked for; it returns only with an error.
func become(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{{"control groups", func() error { return join(o.Groups) }}, {"files", func() error { return files(&o) }},
		{"privileges", func() error { return surrender(o.Drop) }}, {"the filter of calls", filter}} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return turnInto(&o)
}

// turnInto sets the limits of resources and becomes the program. Go has reserved more addresses than most
// programs may have and has more threads than many: once the limits hold, it can neither take memory nor
// begin a thread. So all that is needed is made before, and the calls pass its scheduler by.
func turnInto(o *order) error {
	path, err0 := unix.BytePtrFromString(o.Words[0])
	words, err1 := syscall.SlicePtrFromStrings(o.Words)
	environment, err2 := syscall.SlicePtrFromStrings(os.Environ())
	if err := errors.Join(err0, err1, err2); err != nil {
		return err
	}
	all := limits(o.Limits)
	for i := range all {
		r := &all[i]
		if _, _, no := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(r.what),
			uintptr(unsafe.Pointer(&r.most)), 0, 0, 0); no != 0 {
			return fmt.Errorf("limit %d: %w", r.what, no)
		}
	}
	_, _, no := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&words[0])),
		uintptr(unsafe.Pointer(&environment[0])))
	return fmt.Errorf("%s: %w", o.Words[0], no)
}

// files makes all that is mounted read-only, hides folders with sockets and devices, and makes an empty
// folder in memory.
func files(o *order) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}); err != nil {
		return fmt.Errorf("read-only mounts: %w", err)
	}
	if err := hide(o); err != nil {
		return err
	}
	if err := devices(); err != nil {
		return fmt.Errorf("/dev: %w", err)
	}
	if unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "") != nil {
		// a container may forbid it: then the host's stays, whose processes are out of reach all the same;
		// what it shows of them is hidden
		if err := unix.Mount("tmpfs", "/proc", "tmpfs", unix.MS_RDONLY, "size=0"); err != nil {
			return fmt.Errorf("hiding processes: %w", err)
		}
	}
	return unix.Chdir(o.Folder)
}

// hide mounts empty folders over the hidden ones, of which /tmp can be written, and what is shown into them.
func hide(o *order) error {
	trees := make([]int, len(o.Shown))
	for i, path := range o.Shown {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		trees[i] = fd
	}
	var over []string
	for _, h := range o.Hidden {
		if real, err := filepath.EvalSymlinks(h); err != nil || real != h {
			continue // it is not there, or another's name
		}
		options := "mode=755"
		if h == "/tmp" && o.Drop {
			options = fmt.Sprintf("mode=700,uid=%d,gid=%[1]d", other)
		} else if h == "/tmp" {
			options = "mode=700"
		}
		if err := empty(h, o.Limits.Files, options); err != nil {
			return err
		}
		if h != "/tmp" {
			over = append(over, h)
		}
	}
	for i, path := range o.Shown {
		if err := show(trees[i], path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, h := range over {
		if err := unix.MountSetattr(unix.AT_FDCWD, h, 0,
			&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("%s: %w", h, err)
		}
	}
	return nil
}

// empty mounts an empty folder in memory.
func empty(at string, size int64, options string) error {
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("size=%d,%s", size, options)); err != nil {
		return fmt.Errorf("an empty folder over %s: %w", at, err)
	}
	return nil
}

// show mounts a tree where it was.
func show(tree int, path string) error {
	if _, err := os.Stat(path); err == nil {
		return unix.Close(tree) // below what is shown already
	}
	var s unix.Stat_t
	if err := unix.Fstat(tree, &s); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := blank(path, s.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return errors.Join(unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH), unix.Close(tree))
}

// blank makes what something can be mounted on.
func blank(path string, folder bool) error {
	if folder {
		return os.Mkdir(path, 0o700)
	}
	return os.WriteFile(path, nil, 0o600)
}

// devices mounts a folder over /dev that has the harmless ones.
func devices() error {
	names := []string{"null", "zero", "full", "random", "urandom"}
	trees := make([]int, len(names))
	for i, name := range names {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "/dev/"+name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		trees[i] = fd
	}
	if err := empty("/dev", 1<<20, "mode=755"); err != nil {
		return err
	}
	for i, name := range names {
		if err := show(trees[i], "/dev/"+name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "shm": "/tmp"} {
		if err := os.Symlink(to, "/dev/"+name); err != nil {
			return err
		}
	}
	return unix.MountSetattr(unix.AT_FDCWD, "/dev", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// limit is one of a resource.
type limit struct {
	what int
	most unix.Rlimit
}

// limits are those of a program's resources, that of addresses last.
func limits(l Limits) (all []limit) {
	add := func(what int, most uint64) { all = append(all, limit{what, unix.Rlimit{Cur: most, Max: most}}) }
	add(unix.RLIMIT_CORE, 0)
	add(unix.RLIMIT_CPU, uint64(l.Seconds))
	add(unix.RLIMIT_FSIZE, uint64(l.Files))
	add(unix.RLIMIT_NOFILE, 64)
	add(unix.RLIMIT_NPROC, uint64(l.Processes))
	add(unix.RLIMIT_AS, uint64(l.Memory))
	return all
}

// surrender gives up all privileges for good: those of the namespaces' root too, so that nothing that was set
// can be undone.
func surrender(drop bool) error {
	const noRoot = 1<<0 | 1<<1 | 1<<2 | 1<<3 // SECBIT_NOROOT and NO_SETUID_FIXUP, locked
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, noRoot, 0, 0, 0); err != nil {
		return fmt.Errorf("root without privileges: %w", err)
	}
	for c := range unix.CAP_LAST_CAP + 1 {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
	if drop {
		for _, c := range [][4]uintptr{{unix.SYS_SETGROUPS}, {unix.SYS_SETRESGID, other, other, other},
			{unix.SYS_SETRESUID, other, other, other}} {
			if _, _, no := unix.RawSyscall(c[0], c[1], c[2], c[3]); no != 0 {
				return fmt.Errorf("another user: %w", no)
			}
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}
