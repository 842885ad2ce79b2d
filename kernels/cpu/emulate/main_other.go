//go:build !linux || !amd64

// Command emulate runs a program that uses AMX on a processor without it. It needs Linux on amd64.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "emulate: needs Linux on amd64")
	os.Exit(2)
}
