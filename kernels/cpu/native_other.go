//go:build !amd64 && !arm64

package cpu

func native() []*isa { return nil }

// pause gives a busy wait a moment.
func pause() {
	for range 16 {
	}
}
