package edge

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fewest lets this process open no more files than it has, until the function is called that is returned.
func fewest(t *testing.T) (mend func()) {
	t.Helper()
	var usual unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &usual))
	const most = 200 // more than a test has open
	var all []int
	for last := 0; last < most; all = append(all, last) {
		var err error
		last, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: usual.Max}))
	return func() {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &usual))
		for _, fd := range all {
			require.NoError(t, unix.Close(fd))
		}
	}
}

// TestNoFiles: two processes that have had an edge take it up again while they may open no more files.
func TestNoFiles(t *testing.T) {
	a, b := pair(t)
	l := listen(t, a, Options{})
	dial := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		c, err := Dial(ctx, l.Addr().String(), "h1", b, Greeting{Proc: 1})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		in, err := l.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { in.Close() })
	}
	dial()
	mend := fewest(t)
	defer mend()
	dial()
	dial()
}
