package links

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
)

// shy is a transport that makes no connection so many times, or ends some before anybody has read from them.
type shy struct {
	Transport
	refuse atomic.Int32
	cut    bool
}

func (s *shy) Dial(proc int) (net.Conn, error) {
	if s.refuse.Add(-1) < 0 {
		return s.Transport.Dial(proc)
	}
	if !s.cut {
		return nil, errors.New("nobody listens")
	}
	here, there := net.Pipe()
	there.Close()
	return here, nil
}

// TestNeeded: an answer is lost with its connection, and so is, over the same edge, the first word that it was: whoever
// leads hears of it all the same, of the epoch that it was of. That a process is back it hears also where the epoch of
// that is over.
func TestNeeded(t *testing.T) {
	for _, cut := range []bool{false, true} {
		for _, times := range []int32{1, 2, 3} {
			t.Run(fmt.Sprint(cut, times), func(t *testing.T) {
				dir := t.TempDir()
				var ends [2]*Links
				got := make(inbox, 16)
				for proc := range ends {
					at, err := Unix(dir, proc)
					require.NoError(t, err)
					x := &shy{Transport: at, cut: cut}
					if proc == 1 {
						x.refuse.Store(times)
					}
					ends[proc] = New(x, proc, 0, [32]byte{}, func(r actors.Ref) int { return int(r) })
				}
				ends[1].Lost = func(_ int, epoch uint32, cause error) {
					ends[1].Send(0, actors.Message{Kind: actors.Broken, From: 1, Epoch: epoch, Text: cause.Error()})
				}
				for _, end := range ends {
					end.Serve(got, 0)
				}
				next := func() actors.Message {
					select {
					case m := <-got:
						return m
					case <-time.After(time.Minute):
						t.Fatal("nobody is told")
					}
					panic("unreachable")
				}
				ends[1].Send(0, actors.Message{Kind: actors.Rewound, From: 1, Epoch: 3})
				m := next()
				require.Equal(t, actors.Broken, m.Kind)
				require.Equal(t, uint32(3), m.Epoch)
				ends[1].t.(*shy).refuse.Store(times)
				ends[1].Send(0, actors.Message{Kind: actors.Join, From: 2, Epoch: 0, Step: 7})
				for m.Kind != actors.Join {
					m = next()
				}
				require.Equal(t, int64(7), m.Step)
				ends[1].Close()
				ends[0].Close()
			})
		}
	}
}
