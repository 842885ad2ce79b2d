//go:build !linux

package agent

import "syscall"

// procAttr gives a process a group of its own.
func procAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
