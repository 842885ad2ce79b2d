//go:build cuda

package cuda

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Flags of a visit to a device: bench/gpu.sh sets them.
var (
	visitFile = flag.String("visit", "",
		"a file that names the operations that were begun; those that it names are not run again")
	visitLimit = flag.Duration("visit.limit", 30*time.Second, "the longest that one operation may take")
	visitOps   = flag.String("visit.ops", ".", "the operations, as a pattern")
	visitShare = flag.String("visit.share", "0/1", "every so many-th operation, from which one on: 2/8")
	visitPlant = flag.String("visit.plant", "",
		"panic:N, lost:N or hang:N, in the N-th operation: for tests of what a visit keeps")
)

// Exit codes that ask for another process, which goes on behind the operation that the file names last.
const (
	exitHangs = 3 // an operation does not end
	exitLost  = 4 // the device is lost to this process
)

// visit runs the suite one operation after another, and says of each how it went when it has ended. One that
// panics or fails leaves the others as they are. Where the device is lost or hangs, the process ends and the
// next goes on behind that operation.
// Calls that the device leaves to the processor are counted, and fail an operation that has no reason for any.
func visit(t *testing.T, d *accel.Device, left *tally) {
	pool := tensor.NewPool("device", 0).In(d)
	b := &visited{Backend: kernelstest.Carried(t, d, pool)}
	begun, wanted, n, mine := begunBefore(t), regexp.MustCompile(*visitOps), 0, shared(t)
	for _, s := range kernels.Specs() {
		if table[s.Op] == nil || !wanted.MatchString(string(s.Op)) {
			continue
		}
		if n++; begun[string(s.Op)] || !mine(n) {
			continue
		}
		begin(t, s.Op)
		b.plant = planted(n)
		hangs := time.AfterFunc(*visitLimit, func() {
			fmt.Printf("visit: %s HANGS: it has not ended after %v; the next process goes on behind it\n",
				s.Op,
				*visitLimit)
			os.Exit(exitHangs)
		})
		began := time.Now()
		left.calls, b.calls = 0, 0
		good := t.Run(string(s.Op), func(t *testing.T) {
			kernelstest.Part{Has: func(op kernels.Op) bool { return op == s.Op }}.Run(t, b)
			require.False(t, left.calls > 0 && onProcessorOf[s.Op].why == "", "%d calls on the processor", left.calls)
		})
		hangs.Stop()
		switch {
		case b.lost != nil:
			fmt.Printf("visit: %s LOST the device: %v; the next process goes on behind it\n", s.Op, b.lost)
			os.Exit(exitLost)
		case good:
			fmt.Printf("visit: %s ok %.1fs%s\n", s.Op, time.Since(began).Seconds(), left.of(b.calls))
		default:
			fmt.Printf("visit: %s FAILED\n", s.Op)
		}
	}
	if mine(0) && wanted.MatchString("besides") {
		t.Run("besides", func(t *testing.T) { besidesAre(t, d) })
	}
	d.Sync()
	require.NoError(t, d.Close())
	require.Zero(t, pool.Live())
}

// tally is the definition, and counts the calls that a device leaves to it.
type tally struct {
	kernels.Backend
	calls int
}

func (l *tally) Run(c *kernels.Call) {
	l.calls++
	l.Backend.Run(c)
}

// of says how many of some calls were left; nothing where none was.
func (l *tally) of(calls int) string {
	if l.calls == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of %d calls on the processor", l.calls, calls)
}

// newTally is one, and what a device does with it.
func newTally() (*tally, accel.Absent) {
	l := &tally{Backend: ref.New()}
	return l, accel.Absent{Open: func() (kernels.Backend, error) { return l, nil }}
}

// shared tells whether the n-th operation is of the share that is wanted.
func shared(t *testing.T) func(n int) bool {
	var at, of int
	_, err := fmt.Sscanf(*visitShare, "%d/%d", &at, &of)
	require.NoError(t, err, "-visit.share")
	require.True(t, of > 0 && at >= 0 && at < of, "-visit.share %s", *visitShare)
	return func(n int) bool { return n%of == at }
}

// visited is a backend that keeps the first error of its device.
type visited struct {
	kernels.Backend
	lost  error
	plant string
	calls int
}

// Run implements kernels.Backend.
func (v *visited) Run(c *kernels.Call) {
	defer func() {
		if p := recover(); p != nil {
			var lost *kernels.DeviceError
			if err, ok := p.(error); ok && errors.As(err, &lost) && v.lost == nil {
				v.lost = lost
			}
			panic(p)
		}
	}()
	switch v.plant {
	case "panic":
		panic("planted")
	case "lost":
		panic(&kernels.DeviceError{Device: v.Name(), Err: errors.New("planted")})
	case "hang":
		select {}
	}
	v.calls++
	v.Backend.Run(c)
}

// planted is what -visit.plant has for an operation.
func planted(n int) string {
	what, at, _ := strings.Cut(*visitPlant, ":")
	if at != fmt.Sprint(n) {
		return ""
	}
	return what
}

// begunBefore are the operations that earlier processes began.
func begunBefore(t *testing.T) map[string]bool {
	m := map[string]bool{}
	if *visitFile == "" {
		return m
	}
	text, err := os.ReadFile(*visitFile)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	for _, op := range strings.Fields(string(text)) {
		m[op] = true
	}
	return m
}

// begin names an operation in the file before it runs.
func begin(t *testing.T, op kernels.Op) {
	if *visitFile == "" {
		return
	}
	f, err := os.OpenFile(*visitFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	_, err = fmt.Fprintln(f, op)
	require.NoError(t, errors.Join(err, f.Close()))
}
