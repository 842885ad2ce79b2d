//go:build unix

package machine

import "syscall"

const otherTerm = syscall.SIGUSR2
