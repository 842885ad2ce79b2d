package agent

import (
	"io"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// TestOverdue: what is stopped has three seconds, what runs and does not get to it ten.
func TestOverdue(t *testing.T) {
	require.False(t, overdue(leaseStopped-1, false))
	require.True(t, overdue(leaseStopped, false))
	require.False(t, overdue(leaseRunning-1, true))
	require.True(t, overdue(leaseRunning, true))
}

// TestLease: a process that has said that it lives, and is stopped then, is killed; one that never said so
// is not.
func TestLease(t *testing.T) {
	a := &Agent{o: Options{Log: io.Discard}}
	for _, beats := range []bool{true, false} {
		t.Run(map[bool]string{true: "beats", false: "silent"}[beats], func(t *testing.T) {
			t.Parallel()
			conn, theirs, err := pair()
			require.NoError(t, err)
			defer conn.Close()
			c := exec.Command("sleep", "1000")
			c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			require.NoError(t, c.Start())
			require.NoError(t, c.Process.Signal(syscall.SIGSTOP))
			p := &proc{Proc: control.Proc{Job: "1", Pid: c.Process.Pid}, cmd: c, talk: control.NewConn(conn, nil)}
			other, err := net.FileConn(theirs)
			require.NoError(t, err)
			defer other.Close()
			far := control.NewConn(other, nil)
			if beats {
				require.NoError(t, far.Send(control.Message{Kind: control.Beat}))
			}
			heard := make(chan struct{})
			go func() {
				a.listenTo(p)
				close(heard)
			}()
			if !beats {
				select {
				case <-heard:
					t.Fatal("it has not said that it would beat")
				case <-time.After(leaseStopped + time.Second):
				}
				require.NoError(t, c.Process.Kill())
				require.Error(t, c.Wait())
				return
			}
			require.ErrorContains(t, c.Wait(), "killed")
			<-heard
			require.Regexp(t, `^said nothing for 3\S*s, being stopped \(by a signal or from the terminal\),$`, p.hung)
		})
	}
}
