package cpu

import "syscall"

// permitTiles asks the kernel for the state of AMX tiles, which it grants to the process as a whole
// (arch_prctl(2), ARCH_REQ_XCOMP_PERM of XFEATURE_XTILE_DATA).
func permitTiles() bool {
	_, _, e := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, 0x1023, 18, 0)
	return e == 0
}
