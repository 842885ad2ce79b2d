package machine

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Load watches what other programs take of the processors.
type Load struct {
	began     time.Time
	busy, own float64 // seconds of processors
}

// NewLoad begins to watch.
func NewLoad() *Load { return &Load{time.Now(), busySeconds(), CPUSeconds()} }

// Others is the share of the machine's processors that other programs have had since NewLoad, 0 where the
// system does not say.
func (l *Load) Others() float64 {
	busy := busySeconds()
	if busy == 0 || l.busy == 0 {
		return 0
	}
	others := busy - l.busy - (CPUSeconds() - l.own)
	all := time.Since(l.began).Seconds() * float64(runtime.NumCPU())
	return max(0, others/max(all, 1e-9))
}

// busySeconds is what all processors have worked since the machine started (/proc/stat), 0 if that is not known.
func busySeconds() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0 // another system
	}
	line, _, _ := strings.Cut(string(text), "\n")
	sum := 0.0
	for i, word := range strings.Fields(line) {
		n, err := strconv.ParseFloat(word, 64)
		// the fields are user, nice, system, idle, waiting, interrupts of two kinds, stolen, and guests,
		// which are counted in user and nice already
		if i == 0 || i == 4 || i == 5 || i > 8 || err != nil {
			continue
		}
		sum += n
	}
	const ticks = 100 // a second, on every Linux
	return sum / ticks
}
