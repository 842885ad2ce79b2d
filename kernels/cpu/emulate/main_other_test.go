//go:build !linux || !amd64

// Package emulate has a program of tests that runs programs which use AMX on a processor without it. It needs Linux on amd64.
package emulate

import (
	"fmt"
	"os"
)

// emulate refuses to be run.
func emulate() {
	fmt.Fprintln(os.Stderr, "emulate: needs Linux on amd64")
	os.Exit(2)
}
