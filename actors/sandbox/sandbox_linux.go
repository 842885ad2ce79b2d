package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolate has a program begin in namespaces of its own, as their root.
func isolate(c *exec.Cmd) error {
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL}
	return nil
}

func init() {
	if len(os.Args) == 2 && os.Args[0] == word {
		runtime.LockOSThread() // privileges are a thread's
		err := become(os.Args[1])
		fmt.Fprintf(os.Stderr, "%s%v\n", marker, err)
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
	}{{"files", func() error { return files(o.Limits) }}, {"privileges", surrender},
		{"bounds", func() error { return bounds(o.Limits) }}} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return syscall.Exec(o.Words[0], o.Words, os.Environ())
}

// files makes all that is mounted read-only, and an empty folder in memory.
func files(l Limits) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}); err != nil {
		return fmt.Errorf("read-only mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("size=%d,mode=700",
			l.Files)); err != nil {
		return fmt.Errorf("a folder in memory: %w", err)
	}
	if unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "") != nil {
		// a container may forbid it: then the host's stays, whose processes are out of reach all the same; what it
		// shows of them is hidden
		if err := unix.Mount("tmpfs", "/proc", "tmpfs", unix.MS_RDONLY, "size=0"); err != nil {
			return fmt.Errorf("hiding processes: %w", err)
		}
	}
	return unix.Chdir("/tmp")
}

// bounds sets limits of resources.
func bounds(l Limits) error {
	for _, r := range []struct {
		what int
		most uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_CPU, uint64(l.Seconds)}, {unix.RLIMIT_FSIZE, uint64(l.Files)},
		{unix.RLIMIT_NOFILE, 64}, {unix.RLIMIT_NPROC, uint64(l.Processes)}, {unix.RLIMIT_AS,
			uint64(l.Memory)}} {
		if err := unix.Setrlimit(r.what, &unix.Rlimit{Cur: r.most, Max: r.most}); err != nil {
			return fmt.Errorf("limit %d: %w", r.what, err)
		}
	}
	return nil
}

// surrender gives up all privileges for good: those of the namespaces' root too, so that nothing that was set can be
// undone.
func surrender() error {
	const noRoot = 1<<0 | 1<<1 | 1<<2 | 1<<3 // SECBIT_NOROOT and NO_SETUID_FIXUP, locked
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, noRoot, 0, 0, 0); err != nil {
		return fmt.Errorf("root without privileges: %w", err)
	}
	for c := range unix.CAP_LAST_CAP + 1 {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}
