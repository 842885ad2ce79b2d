//go:build !unix

package main

// cpuSeconds and residentBytes are not known here.
func cpuSeconds() float64  { return 0 }
func residentBytes() int64 { return 0 }
