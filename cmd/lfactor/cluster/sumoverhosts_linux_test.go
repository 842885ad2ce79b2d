package cluster_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/cluster/edge"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// far is the transport of a host of a rig.
type far struct {
	*edge.Listener
	h     *Host
	id    *trust.Identity
	addrs []string
	names []string
}

// Dial implements links.Transport.
func (f *far) Dial(proc int) (c net.Conn, err error) {
	f.h.Within(func() {
		c, err = edge.Dial(context.Background(), f.addrs[proc], f.names[proc], f.id, edge.Greeting{})
	})
	return c, err
}

// identity is that of a host of a cluster.
func identity(b *testing.B, ca *trust.CA, name string) *trust.Identity {
	dir := b.TempDir()
	key, err := trust.NewKey()
	require.NoError(b, err)
	cert, err := ca.Issue(trust.Subject{Name: name, Role: trust.Agent}, &key.PublicKey, time.Now(), time.Hour)
	require.NoError(b, err)
	require.NoError(b, trust.SaveIdentity(dir, ca.Cert, cert, key))
	id, err := trust.Load(dir, nil)
	require.NoError(b, err)
	return id
}

// adder sums tensors with others as the optimizer step does: each sums its rows and sends the sums to all.
type adder struct {
	me, n   int
	backend kernels.Backend
	pool    *tensor.Pool
	own     *tensor.Tensor // [n x]
	parts   []*links.Pack
	sums    int
	done    chan int
}

// Receive implements actors.Behaviour. Segment tells parts from sums.
func (a *adder) Receive(ctx actors.Context, m *actors.Message) {
	switch {
	case m.Kind == actors.Open:
		a.parts, a.sums = make([]*links.Pack, a.n), 0
		for i := range a.n {
			a.send(ctx, i, 0, a.own.RowSlice(i, i+1))
		}
	case m.Kind == actors.Part && m.Segment == 0:
		a.parts[m.Member] = m.Payload.(*links.Pack)
		for _, p := range a.parts {
			if p == nil {
				return
			}
		}
		sum, err := a.pool.New("sum", tensor.F32, 1, a.own.Shape[1])
		if err != nil {
			panic(err)
		}
		in := make([]*tensor.Tensor, a.n)
		for i, p := range a.parts {
			in[i] = p.Tensors[0]
		}
		a.backend.Run(&kernels.Call{Op: kernels.Sum, In: in, Out: []*tensor.Tensor{sum}})
		for _, p := range a.parts {
			p.Release()
		}
		for i := range a.n {
			a.send(ctx, i, 1, sum.Retain())
		}
		sum.Release()
	case m.Kind == actors.Part:
		m.Payload.Release()
		if a.sums++; a.sums == a.n {
			a.done <- a.me
		}
	}
}

func (a *adder) send(ctx actors.Context, to int, segment int32, t *tensor.Tensor) {
	ctx.Send(actors.Ref(to), actors.Message{Kind: actors.Part, Segment: segment, Member: int32(a.me),
		Payload: links.NewPack(nil, t)})
}

// Waits implements actors.Behaviour.
func (a *adder) Waits() actors.Wait { return actors.Wait{For: actors.None} }

// BenchmarkSum sums 64 MiB of gradients over four hosts whose links carry 1 Gbit/s each way, encrypted. A
// ring that sends at the full rate takes 2(n-1)/n of the bytes: 0.805 s.
func BenchmarkSum(b *testing.B) {
	const n, size, rate = 4, 64 << 20, 1_000_000_000
	r := newRig(b, n, b.TempDir())
	ca, err := trust.NewCA("bench", time.Now())
	require.NoError(b, err)
	f := make([]*far, n)
	var addrs, names []string
	for i, h := range r.Hosts {
		f[i] = &far{h: h, id: identity(b, ca, h.Name)}
		h.Within(func() { f[i].Listener, err = edge.Listen(h.Addr+":0", f[i].id, edge.Options{}) })
		require.NoError(b, err)
		addrs, names = append(addrs, f[i].Addr().String()), append(names, h.Name)
		h.Rate(rate)
	}
	done := make(chan int, n)
	var all []*host.System
	for i := range n {
		f[i].addrs, f[i].names = addrs, names
		l := links.New(f[i], i, 0, [32]byte{1}, func(r actors.Ref) int { return int(r) })
		s := host.NewSystem(1, n, l)
		s.Spawn(actors.Ref(i), fmt.Sprint("adder ", i), &adder{me: i, n: n, done: done,
			backend: cpu.New(1), pool: tensor.NewPool("sums", 1<<30),
			own: tensor.Make(tensor.F32, n, size/4/n)}, nil)
		l.Serve(s, actors.None)
		all = append(all, s)
		b.Cleanup(func() { s.Stop(); l.Close() })
	}
	sum := func() {
		for i, s := range all {
			s.Send(actors.Ref(i), actors.Message{Kind: actors.Open})
		}
		for range n {
			<-done
		}
	}
	sum() // opens the edges
	b.ResetTimer()
	for b.Loop() {
		sum()
	}
	bound := float64(size) * 2 * (n - 1) / n * 8 / rate
	b.ReportMetric(bound/(b.Elapsed().Seconds()/float64(b.N)), "of-ring-bound")
}
