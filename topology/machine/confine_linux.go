package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What Landlock grants (landlock(7)).
const (
	rightsRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	rightsUse  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	rightsFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	rightsFirst = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1 // of the first version
	rightsNever = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
)

// landlock is the version that the kernel has, 0 for none.
func landlock() int {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// handled are the rights that a version knows: what is not granted of them is refused.
func handled(version int) uint64 {
	all := uint64(rightsFirst)
	for at, right := range []uint64{2: unix.LANDLOCK_ACCESS_FS_REFER, 3: unix.LANDLOCK_ACCESS_FS_TRUNCATE,
		5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV} {
		if version >= at {
			all |= right
		}
	}
	return all
}

// Confines says why this system does not hold programs to directories.
func Confines() error {
	if landlock() > 0 {
		return nil
	}
	return errors.New("this kernel holds no program to directories: it has no Landlock, which Linux has since 5.13 " +
		"where it is built and not left out (lsm=)")
}

// Exec makes this process another program of its own file, with these words and this environment, held to
// what the confinement says. It returns only with an error, and the process is of no use then. What cannot be
// held by directories is held by the user that it becomes, or not begun.
func (c Confinement) Exec(argv, env []string) error {
	runtime.LockOSThread() // what follows is of one thread, which becomes the program
	version := landlock()
	if version == 0 && c.UID == 0 {
		return Confines()
	}
	rules, err := c.ruleset(version)
	if err != nil {
		return err
	}
	if c.UID > 0 {
		if err := errors.Join(syscall.Setgroups([]int{c.GID}), syscall.Setgid(c.GID), syscall.Setuid(c.UID)); err != nil {
			return fmt.Errorf("becoming user %d: %w", c.UID, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if version > 0 {
		if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); errno != 0 {
			return fmt.Errorf("landlock: %w", errno)
		}
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil { // a new user has none
		return err
	}
	if err := errors.Join(os.MkdirAll(c.Dir, 0o700), os.Chdir(c.Dir)); err != nil {
		return fmt.Errorf("the job's directory, as user %d: %w", os.Getuid(), err)
	}
	return fmt.Errorf("beginning anew as user %d: %w", os.Getuid(), unix.Exec("/proc/self/exe", argv, env))
}

// ruleset is what Landlock is told; the files are opened as who this process still is.
func (c Confinement) ruleset(version int) (int, error) {
	if version == 0 {
		return -1, nil
	}
	all := handled(version)
	never := uint64(rightsNever)
	if c.UID == 0 { // what this process writes for others would follow it
		never |= unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: all}
	size := unsafe.Sizeof(attr.Handled_access_fs)
	if version >= 6 { // nor may it end what others run
		attr.Scoped, size = unix.LANDLOCK_SCOPE_SIGNAL, 3*size
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return -1, fmt.Errorf("landlock: %w", errno)
	}
	for _, r := range []struct {
		names  []string
		rights uint64
	}{{systemRead, rightsRead}, {append(c.Read, "/proc/self/exe"), rightsRead}, {systemUse, rightsUse},
		{Outermost(c.Write), all &^ never}} {
		for _, pattern := range r.names {
			found, err := filepath.Glob(pattern)
			if err != nil || !strings.ContainsAny(pattern, "*") {
				found = []string{pattern}
			}
			for _, name := range found {
				if err := grant(int(fd), name, r.rights&all); err != nil {
					return -1, err
				}
			}
		}
	}
	return int(fd), nil
}

// grant lets the rights hold below a file or directory, if it is there.
func grant(rules int, name string, rights uint64) error {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // what is missing, or not to be reached, is not granted
	}
	defer unix.Close(fd)
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return err
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= rightsFile
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: %s: %w", name, errno)
	}
	return nil
}

// As does something with the rights that a user has to files, where this process is root; uid 0 is who it is.
// What it starts in goroutines of its own has those of this process.
func As(uid, gid int, do func()) {
	if uid == 0 || os.Geteuid() != 0 {
		do()
		return
	}
	runtime.LockOSThread()
	defer func() {
		if become(0, 0) {
			runtime.UnlockOSThread() // else the thread ends with its goroutine
		}
	}()
	if become(uid, gid) { // nothing is done with more rights than were asked for
		do()
	}
}

// become gives this thread the rights of a user to files, and reports whether it has them.
func become(uid, gid int) bool {
	if unix.Setfsgid(gid) != nil || unix.Setfsuid(uid) != nil {
		return false
	}
	now, err := unix.SetfsuidRetUid(-1) // it changes nothing, and says what is
	return err == nil && now == uid
}
