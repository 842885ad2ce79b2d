//go:build !linux

package machine

import "os/exec"

// StartTied starts a program, which only a guard ends with this process.
func StartTied(c *exec.Cmd) error { return c.Start() }
