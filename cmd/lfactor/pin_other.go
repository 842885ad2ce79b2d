//go:build !linux

package main

// pinThread does nothing where threads cannot be kept on a core.
func pinThread(int) {}
