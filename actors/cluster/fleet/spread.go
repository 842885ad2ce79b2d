package fleet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/edge"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/dataset"
)

// A data job on a cluster is one process a host. The one that leads reads the input's order and writes the output; it
// hands out batches of items, and every process makes them what they become. A connection of a helper has one batch at
// a time, and a helper one connection a core: these are the credits. A batch whose connection ends is handed out again.

// batch is one call of a dataset.Work that somebody is to carry out.
type batch struct {
	part     int
	from, to int64
	with     []byte      // that goes along
	done     chan result // has room for the one that comes
	ended    bool        // who is later with the same batch is late
	since    time.Time   // it was handed out, zero before
}

// result is what became of a batch.
type result struct {
	text []byte
	err  error
}

// end gives a batch's result to who waits for it.
func (b *board) end(x *batch, host string, r result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !x.ended {
		x.ended = true
		b.made[host]++
		x.done <- r
	}
}

// board is where batches wait.
type board struct {
	mu    sync.Mutex
	wake  *sync.Cond
	queue []*batch
	out   map[*batch]bool // handed out
	most  time.Duration   // that one took
	made  map[string]int  // by host: batches
	over  bool
}

// newBoard makes an empty board of batches to spread.
func newBoard() *board {
	b := &board{out: map[*batch]bool{}, made: map[string]int{}}
	b.wake = sync.NewCond(&b.mu)
	return b
}

// put adds a batch; one that is handed out again goes first, for somebody waits for it.
func (b *board) put(x *batch, again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if delete(b.out, x); again {
		b.queue = append([]*batch{x}, b.queue...)
	} else {
		b.queue = append(b.queue, x)
	}
	b.wake.Signal()
}

// take waits for a batch, and gives nil at the end.
func (b *board) take() *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 && !b.over {
		b.wake.Wait()
	}
	if b.over {
		return nil
	}
	x := b.queue[0]
	b.queue = b.queue[1:]
	b.out[x], x.since = true, time.Now()
	return x
}

// took notes that a batch is done.
func (b *board) took(x *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out[x] {
		b.most = max(b.most, time.Since(x.since))
	}
	delete(b.out, x)
}

// A batch that has been under way for lateFrom, and lateTimes as long as any other took, is handed out to
// another as well: a process that is stopped says nothing and closes nothing.
const (
	lateFrom  = 5 * time.Second
	lateTimes = 4
)

// again hands out once more what is late.
func (b *board) again(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for x := range b.out {
		if now.Sub(x.since) > max(lateFrom, lateTimes*b.most) {
			x.since = now
			b.queue = append([]*batch{x}, b.queue...)
			b.wake.Signal()
		}
	}
}

// close ends the board and wakes all that wait at it.
func (b *board) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	b.wake.Broadcast()
}

// do has a batch made by whoever is free. It implements dataset.Work.
func (b *board) do(ctx context.Context, part int, from, to int64, with []byte) ([]byte, error) {
	x := &batch{part: part, from: from, to: to, with: with, done: make(chan result, 1)}
	b.put(x, false)
	select {
	case r := <-x.done:
		b.took(x)
		return r.text, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// here makes batches in this process, which is on a host.
func (b *board) here(ctx context.Context, host string, work dataset.Work) {
	for x := b.take(); x != nil; x = b.take() {
		text, err := work(ctx, x.part, x.from, x.to, x.with)
		b.end(x, host, result{text, err})
	}
}

const (
	batchHead  = 4 * 8   // of a request: part, from, to, and the length of what goes along
	answerHead = 9       // of an answer: whether it is an error, and its length
	answerMost = 1 << 36 // bytes of an answer, and of what goes along
)

// there has batches made by the process of a host at the other end of a connection, until that ends.
func (b *board) there(c net.Conn, host string) error {
	for x := b.take(); x != nil; x = b.take() {
		r, err := x.ask(c)
		if err != nil {
			b.put(x, true)
			return err
		}
		b.end(x, host, r)
	}
	return nil
}

// ask sends a batch and reads what became of it.
func (x *batch) ask(c net.Conn) (r result, err error) {
	h := make([]byte, batchHead)
	for i, v := range []int64{int64(x.part), x.from, x.to, int64(len(x.with))} {
		binary.LittleEndian.PutUint64(h[8*i:], uint64(v))
	}
	if err := send(c, h, x.with); err != nil {
		return r, err
	}
	if _, err := io.ReadFull(c, h[:answerHead]); err != nil {
		return r, err
	}
	n := binary.LittleEndian.Uint64(h[1:])
	text, err := receive(c, n)
	if h[0] != 0 {
		return result{err: errors.New(string(text))}, err
	}
	return result{text: text}, err
}

// receive reads so many bytes.
func receive(c net.Conn, n uint64) ([]byte, error) {
	if n > answerMost {
		return nil, fmt.Errorf("a message of %d bytes, more than %d", n, int64(answerMost))
	}
	text, err := io.ReadAll(io.LimitReader(c, int64(n))) // memory grows with what comes
	if err == nil && uint64(len(text)) < n {
		err = io.ErrUnexpectedEOF
	}
	return text, err
}

// send writes to a connection, which may gather what is written until it is told that it is all.
func send(c net.Conn, parts ...[]byte) error {
	for _, p := range parts {
		if len(p) == 0 {
			continue
		}
		if _, err := c.Write(p); err != nil {
			return err
		}
	}
	if f, ok := c.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}

// serve makes the batches that come over a connection, until it ends.
func serve(ctx context.Context, c net.Conn, work dataset.Work) error {
	h := make([]byte, batchHead)
	for {
		if _, err := io.ReadFull(c, h); err != nil {
			return err
		}
		v := func(i int) int64 { return int64(binary.LittleEndian.Uint64(h[8*i:])) }
		with, err := receive(c, uint64(v(3)))
		if err != nil {
			return err
		}
		text, err := work(ctx, int(v(0)), v(1), v(2), with)
		head := make([]byte, answerHead)
		if err != nil {
			head[0], text = 1, []byte(err.Error())
		}
		binary.LittleEndian.PutUint64(head[1:], uint64(len(text)))
		if err := send(c, head, text); err != nil {
			return err
		}
	}
}

// Help makes batches for the process that leads, and ends when that does or wants no more.
func (f *Fleet) Help(ctx context.Context, work dataset.Work) error {
	t, err := f.Transport(f.self.Proc)
	if err != nil {
		return err
	}
	defer t.Close()
	fmt.Println("ready")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the leader
		os.Exit(0)
	}()
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			if c, err := t.Dial(0); err == nil {
				_ = serve(ctx, c, work) // how it ends is the leader's to judge
				c.Close()
			}
		})
	}
	wg.Wait()
	return nil
}

// Leads reports whether this process is the one that leads its job.
func (f *Fleet) Leads() bool { return f.self.Proc == 0 }

// helpersMost is how often a helper of a job is started again.
const helpersMost = 10

// Spread has batches made by all processes of the job, which it starts, and by this one. What happens to
// them is told to say; end has them end.
func (f *Fleet) Spread(ctx context.Context, work dataset.Work, say func(string)) (e dataset.Remote, end func(),
	err error) {
	t, err := f.Transport(0)
	if err != nil {
		return e, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &spreading{f: f, board: newBoard(), say: say, done: ctx.Done(), list: map[int]run.Process{}}
	for range runtime.NumCPU() {
		s.wg.Go(func() { s.board.here(ctx, f.self.Node, work) })
	}
	go s.accept(t)
	s.wg.Go(s.watch)
	procs := 1
	if f.self.Spec != nil {
		procs = f.self.Spec.Procs
	}
	for n := 1; n < procs; n++ {
		s.wg.Go(func() { s.keep(n) })
	}
	end = func() {
		cancel()
		s.board.close()
		t.Close()
		s.leave()
		s.wg.Wait()
		s.tell()
	}
	return dataset.Remote{Do: s.board.do, Ahead: min(2*procs*runtime.NumCPU(), aheadMost)}, end, nil
}

// aheadMost bounds the batches that are under way, which lie in the memory of the process that leads.
const aheadMost = 256

// watch hands out again what is late.
func (s *spreading) watch() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case now := <-tick.C:
			s.board.again(now)
		}
	}
}

// spreading is the helpers of a job.
type spreading struct {
	f     *Fleet
	board *board
	say   func(string)
	done  <-chan struct{}
	mu    sync.Mutex
	list  map[int]run.Process
	wg    sync.WaitGroup
}

// accept gives work to whoever connects.
func (s *spreading) accept(t interface{ Accept() (net.Conn, error) }) {
	for {
		c, err := t.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = s.board.there(c, hostOf(c)) // how a process ends is seen by keep
		}()
	}
}

// hostOf is where a connection comes from, as its certificate says.
func hostOf(c net.Conn) string {
	if e, ok := c.(*edge.Conn); ok {
		return e.Peer.Name
	}
	return "?"
}

// tell says who has made how much.
func (s *spreading) tell() {
	s.board.mu.Lock()
	defer s.board.mu.Unlock()
	var by []string
	for _, h := range slices.Sorted(maps.Keys(s.board.made)) {
		by = append(by, fmt.Sprintf("%s %d", h, s.board.made[h]))
	}
	if len(by) > 0 {
		s.say("batches by host: " + strings.Join(by, ", "))
	}
}

// keep starts a helper, and again when it has ended. What it had under way others do.
func (s *spreading) keep(n int) {
	for life := 0; life <= helpersMost; life++ {
		p, err := s.f.Start(n, nil)
		if err == nil {
			s.mu.Lock()
			s.list[n] = p
			s.mu.Unlock()
			err = p.Wait()
		}
		select {
		case <-s.done:
			return
		default:
		}
		name := fmt.Sprintf("process %d", n)
		if p != nil {
			name += fmt.Sprintf(" (%s)", p.Name())
		}
		if err == nil {
			err = errors.New("ended before the job did")
		}
		s.say(fmt.Sprintf("! %s %v; what it had under way is done again", name, err))
		select {
		case <-s.done:
			return
		case <-time.After(time.Duration(life) * redial):
		}
	}
	s.say(fmt.Sprintf("! process %d has ended %d times and is not started again", n, helpersMost+1))
}

// leave lets all helpers end.
func (s *spreading) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.list {
		p.Leave()
	}
}
