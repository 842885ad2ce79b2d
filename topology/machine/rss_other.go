//go:build !unix

package machine

import "time"

// PeakRSS is not known here.
func PeakRSS() int64 { return 0 }

// ProcessorTime is not known here.
func ProcessorTime() time.Duration { return 0 }
