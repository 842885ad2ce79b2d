//go:build cuda

package cuda

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// joined opens two devices with the stand-in of NCCL, and the ends of a channel from one to the other.
func joined(t *testing.T) (from, to *accel.Device, sends, receives kernels.Channel, e *emulate.Driver) {
	t.Helper()
	e = emulate.New(t)
	l, err := LoadFrom(e.Path)
	require.NoError(t, err)
	x, err := LoadExchange(e.Path)
	require.NoError(t, err)
	var d [2]*accel.Device
	for i := range d {
		d[i], err = l.New(i, Settings{Absent: strict, Exchange: x})
		require.NoError(t, err)
		require.True(t, d[i].Joins())
		t.Cleanup(func() { require.NoError(t, d[i].Close()) })
	}
	id, err := d[0].ChannelID()
	require.NoError(t, err)
	sends, err = d[0].Channel(id, true)
	require.NoError(t, err)
	t.Cleanup(sends.Abort)
	receives, err = d[1].Channel(id, false)
	require.NoError(t, err)
	t.Cleanup(receives.Abort)
	return d[0], d[1], sends, receives, e
}

// TestChannel: tensors arrive as they were behind the event that they were sent with, in order, also while
// operations are delayed at random, and into memory that earlier calls still use.
func TestChannel(t *testing.T) {
	from, to, sends, receives, e := joined(t)
	e.Set(t, "jitter", 100, 0)
	pf, pt := tensor.NewPool("from", 0).In(from), tensor.NewPool("to", 0).In(to)
	x, small := place(t, from, pf, numbers(100)), place(t, from, pf, numbers(3))
	for i := range 20 {
		from.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{x},
			Attr: kernels.Attr{F: [2]float64{float64(i + 1)}}})
		behind := from.Record()
		sent := make(chan error)
		go func() { sent <- sends.Send([]*tensor.Tensor{x, small}, behind) }()
		y, err := pt.New("y", tensor.F32, 100)
		require.NoError(t, err)
		for range 5 {
			to.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{y}})
		}
		z, err := pt.New("z", tensor.F32, 3)
		require.NoError(t, err)
		require.NoError(t, receives.Receive([]*tensor.Tensor{y, z}))
		require.NoError(t, <-sent)
		h := kernels.Host(to, y)
		require.Equal(t, []float32{float32(i + 1), float32(i + 1)}, []float32{h.F32()[0], h.F32()[99]})
		require.Equal(t, numbers(3).F32(), kernels.Host(to, z).F32())
		y.Release()
		z.Release()
	}
}

// TestChannelAborted: an exchange that never ends, because the other end does not come, stops in the middle
// or is lost, ends with an error when it is aborted or the library notices; the device goes on.
func TestChannelAborted(t *testing.T) {
	from, to, sends, receives, e := joined(t)
	x := place(t, from, tensor.NewPool("from", 0).In(from), numbers(100))
	y := place(t, to, tensor.NewPool("to", 0).In(to), numbers(100))
	ends := make(chan error)
	go func() { ends <- receives.Receive([]*tensor.Tensor{y}) }()
	receives.Abort()
	require.ErrorIs(t, <-ends, errAborted, "nobody has sent")
	to.Sync()
	go func() { ends <- sends.Send([]*tensor.Tensor{x}, nil) }()
	if err := <-ends; err != nil { // what it had sent may be in the library's hands already
		require.ErrorContains(t, err, "remote process exited or there was a network error (6)")
	}

	from, to, sends, receives, e = joined(t)
	x = place(t, from, tensor.NewPool("from", 0).In(from), numbers(100))
	y = place(t, to, tensor.NewPool("to", 0).In(to), numbers(100))
	got := make(chan error)
	exchange := func() {
		go func() { ends <- sends.Send([]*tensor.Tensor{x}, nil) }()
		go func() { got <- receives.Receive([]*tensor.Tensor{y}) }()
	}
	exchange()
	require.NoError(t, errors.Join(<-ends, <-got))
	e.Set(t, "nccl stops", int64(e.Sent()), 0)
	exchange()
	sends.Abort()
	require.Error(t, <-ends)
	require.ErrorContains(t, <-got, "remote process exited or there was a network error (6) (stand-in); "+
		"LFACTOR_LIBNCCL=none exchanges through the host")
	receives.Abort()
	from.Sync()
	to.Sync()
	require.NotPanics(t, func() { to.Read(make([]byte, 400), y) })
}

// TestChannelOnOneDevice: two ranks of different processes on one device are refused by the library, and the
// error says what to do.
func TestChannelOnOneDevice(t *testing.T) {
	from, _, _, _, e := joined(t)
	l, err := LoadFrom(e.Path)
	require.NoError(t, err)
	x, err := LoadExchange(e.Path)
	require.NoError(t, err)
	to, err := l.New(0, Settings{Absent: strict, Exchange: x})
	require.NoError(t, err)
	defer to.Close()
	id, err := from.ChannelID()
	require.NoError(t, err)
	sends, err := from.Channel(id, true)
	require.NoError(t, err)
	defer sends.Abort()
	receives, err := to.Channel(id, false)
	require.NoError(t, err)
	defer receives.Abort()
	y := place(t, to, tensor.NewPool("to", 0).In(to), numbers(4))
	require.ErrorContains(t, receives.Receive([]*tensor.Tensor{y}),
		"invalid usage (5) (stand-in); LFACTOR_LIBNCCL=none exchanges through the host")
}

// toItself moves a tensor by a communicator of one rank, on a device of the machine's or an emulated one:
// all of the library that one device can show.
func toItself(t *testing.T, l *Library, x *Exchange) {
	t.Helper()
	d, err := l.New(0, Settings{Absent: strict, Exchange: x})
	require.NoError(t, err)
	defer d.Close()
	p := tensor.NewPool("device", 0).In(d)
	from, to := place(t, d, p, numbers(1000)), place(t, d, p, tensor.Make(tensor.F32, 1000))
	d.Sync()
	own, err := l.open(0)
	require.NoError(t, err)
	defer own.Close()
	own.exchange = x
	id, err := own.ChannelID()
	require.NoError(t, err)
	e := &channelEnd{d: own, sends: true, stream: own.stream}
	u := channelID{}
	copy(u.bytes[:], id)
	q := &accel.Queue{}
	a, b := q.Addr(from), q.Addr(to)
	require.NoError(t, own.do(func() error {
		return x.failed("ncclCommInitRankConfig", int(x.join(unsafe.Pointer(&e.comm), 1, u, 0,
			unsafe.Pointer(newConfig()))))
	}))
	require.NoError(t, e.settled())
	require.NoError(t, own.do(func() error {
		return errors.Join(x.call("ncclGroupStart", x.begin),
			x.call("ncclSend", x.send, uintptr(a), 4000, 0, 0, e.comm, own.stream),
			x.call("ncclRecv", x.receive, uintptr(b), 4000, 0, 0, e.comm, own.stream),
			x.call("ncclGroupEnd", x.end))
	}))
	require.NoError(t, e.settled())
	m, err := own.Mark()
	require.NoError(t, err)
	require.NoError(t, own.Wait(m))
	own.Drop(m)
	require.Equal(t, numbers(1000).F32(), kernels.Host(d, to).F32())
	require.NoError(t, own.do(func() error { return x.call("ncclCommAbort", x.abort, e.comm) }))
}

// TestExchangeOfOne: a communicator of one rank on the emulated device.
func TestExchangeOfOne(t *testing.T) {
	e := emulate.New(t)
	l, err := LoadFrom(e.Path)
	require.NoError(t, err)
	x, err := LoadExchange(e.Path)
	require.NoError(t, err)
	toItself(t, l, x)
}

// TestWrongExchange: libraries that cannot be used say why.
func TestWrongExchange(t *testing.T) {
	_, err := LoadExchange("libm.so.6")
	require.ErrorContains(t, err, "it is not NCCL 2.18 or later")
	e := emulate.New(t)
	e.Set(t, "nccl", 21700, 23203)
	t.Setenv(ExchangeVariable, e.Path)
	_, err = FindExchange()
	require.ErrorContains(t, err,
		"is NCCL 2.17.0, and 2.18.0 is needed: pip install --upgrade nvidia-nccl-cu13")
	require.Contains(t, describeExchange(), "exchanges between processes through the host: "+e.Path)
	e.Set(t, "nccl", 23203, 23203)
	require.Equal(t, "exchanges between processes by NCCL 2.32.3, "+e.Path, describeExchange())
	_, _, _, _, e = joined(t)
	l, err := LoadFrom(e.Path)
	require.NoError(t, err)
	d, err := l.New(0, Settings{Absent: strict})
	require.NoError(t, err)
	defer d.Close()
	require.False(t, d.Joins())
}
