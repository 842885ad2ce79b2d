package machine

import (
	"context"
	"os"
	"syscall"
	"time"
)

// EnvHoldTerm is the environment variable of processes that leave SIGTERM to whoever has started them: Slurm
// sends it to every process of a job at once, and some would end before others have saved.
const EnvHoldTerm = "LFACTOR_HOLD_SIGTERM"

// HoldsTerm reports whether this process is one of those.
func HoldsTerm() bool { return os.Getenv(EnvHoldTerm) != "" }

// EndSignal is what asks a process of lfactor's to save and end, where this one is of the same kind.
func EndSignal() syscall.Signal {
	if HoldsTerm() {
		return otherTerm
	}
	return syscall.SIGTERM
}

// Pause waits for a while, or until ctx ends, and says then why it has.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
