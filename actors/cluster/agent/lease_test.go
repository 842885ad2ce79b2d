package agent

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/agent/decide"
	"github.com/lfactor/lfactor/actors/cluster/control"
)

// TestLease: a process that has said that it lives, and is stopped then, is killed; one that never said so
// is not.
func TestLease(t *testing.T) {
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
			p := &proc{life: 2, pid: c.Process.Pid, cmd: c, talk: control.NewConn(conn, nil)}
			a := &Agent{o: Options{Log: io.Discard}, procs: map[int64]*proc{2: p},
				d: decide.New(decide.Options{Heads: []string{"head"}})}
			a.d.Step(decide.Begin{})
			a.d.Step(decide.Heard{Conn: 1, M: control.Message{Kind: control.Welcome}})
			require.Equal(t, []decide.Effect{decide.Launch{Life: 2, Order: control.Message{Kind: control.Order}}},
				a.d.Step(decide.Heard{Conn: 1, M: control.Message{Kind: control.Order}}))
			a.d.Step(decide.Started{Life: 2, Pid: p.pid})
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
				case <-time.After(decide.LeaseStopped + time.Second):
				}
				require.NoError(t, c.Process.Kill())
				require.Error(t, c.Wait())
				return
			}
			require.ErrorContains(t, c.Wait(), "killed")
			require.NoError(t, p.talk.Close())
			<-heard
			text := `said nothing for 2\S*s, being stopped \(by a signal or from the terminal\), and was killed`
			require.Regexp(t, text, fmt.Sprint(a.d.Step(decide.Exited{Life: 2, Text: "was killed"})))
		})
	}
}
