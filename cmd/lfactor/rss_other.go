//go:build !unix

package main

import "time"

// peakRSS is not known here.
func peakRSS() int64 { return 0 }

// processorTime is not known here.
func processorTime() time.Duration { return 0 }
