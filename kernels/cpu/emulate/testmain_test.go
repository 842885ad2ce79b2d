package emulate

import (
	"os"
	"strings"
	"testing"
)

// TestMain makes the test binary the emulator wherever its first argument is not one of the flags that "go test" gives:
// the emulator is for tests alone, so it is no program of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		emulate()
	}
	os.Exit(m.Run())
}
