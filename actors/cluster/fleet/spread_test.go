package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// named makes of a batch its own name.
func named(_ context.Context, part int, from, to int64, with []byte) ([]byte, error) {
	if from == 13 {
		return nil, errors.New("unlucky")
	}
	return fmt.Appendf(nil, "%d: %d to %d with %q", part, from, to, with), nil
}

// TestSpread: batches that others carry out over connections come back to who asked for each, errors too;
// one whose connection ends is handed out again, before those that wait.
func TestSpread(t *testing.T) {
	b := newBoard()
	defer b.close()
	ends := make(chan error, 3)
	join := func() (theirs net.Conn) {
		ours, theirs := net.Pipe()
		go func() { ends <- b.there(ours, "far") }()
		return theirs
	}
	type answer struct {
		text []byte
		err  error
	}
	ask := func(part int, from, to int64) chan answer {
		out := make(chan answer, 1)
		go func() {
			text, err := b.do(t.Context(), part, from, to, bytes.Repeat([]byte("x"), part))
			out <- answer{text, err}
		}()
		return out
	}
	first := join()
	one := ask(1, 2, 3)
	_, err := first.Read(make([]byte, batchHead)) // it has taken the batch, and dies
	require.NoError(t, err)
	waiting := ask(0, 5, 6)
	require.Eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.queue) == 1 },
		2*time.Minute, time.Millisecond)
	first.Close()
	require.Error(t, <-ends)
	b.mu.Lock()
	require.Equal(t, 1, b.queue[0].part, "somebody waits for it the longest")
	b.mu.Unlock()
	second := join()
	go func() { _ = serve(t.Context(), second, named) }()
	require.Equal(t, answer{[]byte("1: 2 to 3 with \"x\""), nil}, <-one)
	require.Equal(t, answer{[]byte("0: 5 to 6 with \"\""), nil}, <-waiting)
	require.EqualError(t, (<-ask(0, 13, 14)).err, "unlucky")
	b.mu.Lock()
	require.Empty(t, b.out)
	b.mu.Unlock()
}

// TestSpreadLate: a batch that has been under way for far longer than others is handed out again, and who is
// later with it is late.
func TestSpreadLate(t *testing.T) {
	b := newBoard()
	defer b.close()
	out := make(chan string, 1)
	go func() {
		text, _ := b.do(t.Context(), 0, 1, 2, nil)
		out <- string(text)
	}()
	x := b.take()
	b.again(x.since.Add(lateFrom))
	require.Empty(t, b.queue, "it is not late yet")
	b.most = 2 * time.Second
	b.again(x.since.Add(lateFrom + time.Second))
	require.Empty(t, b.queue, "others took long as well")
	b.again(x.since.Add(lateTimes*b.most + 1))
	require.Len(t, b.queue, 1)
	require.Same(t, x, b.take())
	b.end(x, "a", result{text: []byte("first")})
	b.end(x, "b", result{text: []byte("second")})
	require.Equal(t, "first", <-out)
	require.Equal(t, map[string]int{"a": 1}, b.made)
}

// TestSpreadHuge: an answer longer than any is a broken connection, and takes no memory.
func TestSpreadHuge(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		_, _ = theirs.Read(make([]byte, batchHead))
		_, _ = theirs.Write([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1}) // 2⁵⁶ bytes
	}()
	_, err := (&batch{}).ask(ours)
	require.ErrorContains(t, err, "a message of 72057594037927936 bytes")
}
