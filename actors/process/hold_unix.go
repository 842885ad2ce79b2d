//go:build unix

package process

import "syscall"

const otherTerm = syscall.SIGUSR2
