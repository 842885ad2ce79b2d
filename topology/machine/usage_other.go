//go:build !unix

package machine

// CPUSeconds is not known here.
func CPUSeconds() float64 { return 0 }

// ResidentBytes is not known here.
func ResidentBytes() int64 { return 0 }
