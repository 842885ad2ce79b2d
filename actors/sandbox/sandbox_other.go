//go:build !linux

package sandbox

import (
	"errors"
	"os/exec"
)

// isolate refuses: there are no namespaces.
func isolate(*exec.Cmd) error { return errors.New("sandbox: there are sandboxes on Linux only") }
