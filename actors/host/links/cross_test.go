package links

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
)

// inbox is actors that keep what comes.
type inbox chan actors.Message

func (b inbox) Send(_ actors.Ref, m actors.Message) { b <- m }
func (b inbox) Since() time.Duration                { return 0 }

// bug is an error with a stack, as a panic's.
type bug struct{ error }

func (bug) Trace() []byte { return []byte("goroutine 1") }

// TestCrossing: what comes from another process is what was sent: a payload without tensors is a payload, and
// no payload is none; an error has its text, its exit code and the stack of the panic that it was.
func TestCrossing(t *testing.T) {
	dir := t.TempDir()
	owner := func(r actors.Ref) int { return int(r) }
	var ends [2]*Links
	got := make(inbox, 4)
	for proc := range ends {
		at, err := Unix(dir, proc)
		require.NoError(t, err)
		ends[proc] = New(at, proc, 0, [32]byte{}, owner)
		ends[proc].Serve(got, 0)
	}
	ends[0].Send(1, actors.Message{Kind: actors.Part, From: 0, Payload: NewPack(nil)})
	ends[0].Send(1, actors.Message{Kind: actors.Credit, From: 0})
	ends[0].Send(1, actors.Message{Kind: actors.Failed, From: 0, Err: bug{errors.New("oh")}})
	ends[0].Send(1, actors.Message{Kind: actors.Failed, From: 0, Err: errors.New("plain")})
	part, credit, failed, plain := <-got, <-got, <-got, <-got
	require.Empty(t, part.Payload.(*Pack).Tensors)
	require.Nil(t, credit.Payload)
	require.EqualError(t, failed.Err, "oh")
	require.Equal(t, "goroutine 1", string(failed.Err.(Traced).Trace()))
	require.Equal(t, 1, failed.Err.(ExitCoder).ExitCode())
	require.Empty(t, plain.Err.(Traced).Trace())
	for _, end := range ends {
		end.Close()
	}
}
