package cost

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDispatch: with network.dispatch: once what travels follows from a token's experts: of 8 in 4 of 8 groups over 64
// devices of 8 hosts those that go to different devices, and to half of the hosts. What a file says of a share counts.
func TestDispatch(t *testing.T) {
	read := func(more string) *Machine {
		m, err := Read("c.yaml", []byte("device:\n  flops: 100 TFLOP/s\n  memory: 80 GiB\n  bandwidth: 2 TB/s\nhost:\n"+
			"  devices: 8\n  bandwidth: 400 GB/s\n  latency: 1 us\nnetwork:\n  hosts: 8\n  bandwidth: 50 GB/s\n  latency: 5 us\n"+more))
		require.NoError(t, err)
		again, err := Read("c.yaml", m.Write())
		require.NoError(t, err)
		require.Equal(t, m.Dispatch, again.Dispatch)
		return m
	}
	devices := make([]int, 64)
	for i := range devices {
		devices[i] = i
	}
	copies, once := read(""), read("  dispatch: once\n")
	require.Equal(t, copies.Exchange(devices, 1<<30), once.Exchange(devices, 1<<30), "a model without experts")
	require.Same(t, copies, copies.Routed(8, 256, 0.5))
	near, far := func(share float64) float64 { return 1e-6 + share*(1<<30)*7/63/400e9 }, func(share float64) float64 {
		return 5e-6 + share*(1<<30)*56/63/50e9
	}
	inside := 64 * (1 - math.Pow(63./64, 8)) / 8
	require.InEpsilon(t, max(near(inside), far(4./8)), once.Routed(8, 256, 0.5).Exchange(devices, 1<<30), 1e-12)
	require.InEpsilon(t, max(near(inside), far(1-math.Pow(7./8, 8))), once.Routed(8, 256, 1).Exchange(devices, 1<<30), 1e-12)
	said := *once // a file that says the shares itself
	said.Near, said.Once = 0.5, 0.25
	require.InEpsilon(t, max(near(0.5), far(0.25)), said.Routed(8, 256, 1).Exchange(devices, 1<<30), 1e-12)
	_, err := Read("c.yaml", []byte("network:\n  dispatch: twice\n"))
	require.ErrorContains(t, err, "no way to send rows")
}

// TestSecondKind: what a file does not say of a second kind of devices is as on the first, launches among it.
func TestSecondKind(t *testing.T) {
	text := "device:\n  flops: 100 TFLOP/s\n  memory: 80 GiB\n  bandwidth: 2 TB/s\n  efficiency: 0.5\n  overhead: 4 us\nhost:\n" +
		"  devices: 8\n  bandwidth: 400 GB/s\n  latency: 1 us\nnetwork:\n  hosts: 2\n  bandwidth: 50 GB/s\n  latency: 5 us\n" +
		"second:\n  from: 8\n  flops: 50 TFLOP/s\n  memory: 40 GiB\n  bandwidth: 1 TB/s\n"
	m, err := Read("c.yaml", []byte(text))
	require.NoError(t, err)
	require.InEpsilon(t, 0.004, m.SegmentOn(8, 0, 0, 1000), 1e-9)
	require.InEpsilon(t, 2*m.SegmentOn(0, 1e12, 0, 0), m.SegmentOn(8, 1e12, 0, 0), 1e-9)
	m, err = Read("c.yaml", []byte(text+"  efficiency: 0.25\n  overhead: 0 us\n"))
	require.NoError(t, err)
	require.Zero(t, m.SegmentOn(8, 0, 0, 1000))
	require.InEpsilon(t, 4*m.SegmentOn(0, 1e12, 0, 0), m.SegmentOn(8, 1e12, 0, 0), 1e-9)
	again, err := Read("c.yaml", m.Write())
	require.NoError(t, err)
	require.Equal(t, m.Second, again.Second)
}
