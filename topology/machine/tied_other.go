//go:build !linux

package machine

import "os/exec"

// startTied starts a program, which only a guard ends with this process.
func startTied(c *exec.Cmd) error { return c.Start() }
