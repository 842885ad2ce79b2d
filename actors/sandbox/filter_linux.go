package sandbox

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// arches are the architectures whose calls are filtered, as the kernel numbers them.
var arches = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// refused are the calls that no program in a sandbox makes: those that reach other processes, mount, load code into the
// kernel, read its keys, make namespaces, or would go round the filter, as io_uring does.
var refused = []uint32{unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_KEYCTL,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_BPF, unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SETNS, unix.SYS_UNSHARE, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_ACCT,
	unix.SYS_QUOTACTL, unix.SYS_SYSLOG, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}

// families are the sockets that a program may make: a Unix socket reaches services of the host through files, whatever
// is read-only, and others know no namespaces.
var families = []uint32{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// Places in what a filter reads of a call (struct seccomp_data of linux/seccomp.h), of machines whose first byte
// is the lowest.
const (
	atCall, atArch, atFirst = 0, 4, 16
	refuse                  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

// filter has the kernel refuse calls for good, with EPERM.
func filter() error {
	arch, ok := arches[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("there is none for %s", runtime.GOARCH)
	}
	p := program(arch)
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// program is the filter's, in the kernel's language.
func program(arch uint32) (p []unix.SockFilter) {
	add := func(code int, k uint32, yes, no uint8) {
		p = append(p, unix.SockFilter{Code: uint16(code), K: k, Jt: yes, Jf: no})
	}
	const load, give = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_RET | unix.BPF_K
	const equal, least, bits = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K,
		unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	add(load, atArch, 0, 0)
	add(equal, arch, 1, 0)
	add(give, unix.SECCOMP_RET_KILL_PROCESS, 0, 0)
	add(load, atCall, 0, 0)
	add(least, 1<<30, 0, 1) // calls of x32
	add(give, refuse, 0, 0)
	for _, call := range refused {
		add(equal, call, 0, 1)
		add(give, refuse, 0, 0)
	}
	add(equal, unix.SYS_CLONE3, 0, 1) // whose flags lie in memory: libraries take clone then
	add(give, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS), 0, 0)
	add(equal, unix.SYS_CLONE, 0, 4)
	add(load, atFirst, 0, 0)
	add(bits, unix.CLONE_NEWUSER, 0, 1)
	add(give, refuse, 0, 0)
	add(give, unix.SECCOMP_RET_ALLOW, 0, 0)
	add(equal, unix.SYS_SOCKET, 1, 0)
	add(give, unix.SECCOMP_RET_ALLOW, 0, 0)
	add(load, atFirst, 0, 0)
	for _, f := range families {
		add(equal, f, 0, 1)
		add(give, unix.SECCOMP_RET_ALLOW, 0, 0)
	}
	add(give, refuse, 0, 0)
	return p
}
