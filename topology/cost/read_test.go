package cost

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/topology/collective"
)

// TestShipped reads every cluster that comes with lfactor, and reads back what Write makes of it.
func TestShipped(t *testing.T) {
	files, err := filepath.Glob("../../configs/clusters/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 7)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		m, err := Read(f, text)
		require.NoError(t, err)
		require.Equal(t, strings.TrimSuffix(filepath.Base(f), ".yaml"), m.Name)
		again, err := Read(f, m.Write())
		require.NoError(t, err)
		require.InEpsilon(t, m.Flops, again.Flops, 1e-5)
		require.InEpsilon(t, m.Remote.PerByte, again.Remote.PerByte, 1e-5)
	}
}

const good = "name: x\ndevice:\n  flops: 1 TFLOP/s\n  memory: 1 GiB\n  bandwidth: 1 TB/s\nhost:\n  devices: 2\n  bandwidth: 1 GB/s\n  latency: 1 us\nnetwork:\n  hosts: 3\n  bandwidth: 1 GB/s\n  latency: 1 us\n"

func TestBadClusters(t *testing.T) {
	_, err := Read("c.yaml", []byte(good))
	require.NoError(t, err)
	for _, c := range []struct{ from, to, want string }{
		{"  bandwidth: 1 TB/s", "  bandwidth: -1 TB/s",
			"c.yaml:5: device.bandwidth: -1 must be greater than 0"},
		{"1 TFLOP/s", "1 TFLOPS", `c.yaml:3: device.flops: "TFLOPS" is not a unit for it; use one of FLOP/s`},
		{"1 TFLOP/s", "NaN TFLOP/s", `device.flops: "NaN" is not a number`},
		{"  latency: 1 us\n", "", "c.yaml: host.latency: is missing"},
		{"devices: 2", "devices: 2.5", "host.devices: 2.5 is not a count"},
		{"devices: 2", "devices: 2 dozen", "has no unit"},
		{"  hosts: 3", "  hosts: 3\n  cables: 0-1", "c.yaml:12: network.cables: host 2 is not connected"},
		{"  hosts: 3", "  hosts: 3\n  hosts: 3", "is there twice"},
		{"device:", "devise:", "devise.flops: is not a setting"},
		{"name: x", "name x", "c.yaml:1: is no"},
		{"  memory: 1 GiB", "  memory: 1 GiB\n  multiprocessors: 1.5",
			"c.yaml:5: device.multiprocessors: 1.5 is not a count"},
		{"  memory: 1 GiB", "  memory: 1 GiB\n  prologue: 9",
			"c.yaml:5: device.prologue: is a part of tiles"},
	} {
		_, err := Read("c.yaml", []byte(strings.Replace(good, c.from, c.to, 1)))
		require.ErrorContains(t, err, c.want)
		require.NotEmpty(t, configs.Faults(err))
	}
}

func TestCollectiveChoice(t *testing.T) {
	m, err := Read("c.yaml", []byte(strings.Replace(good, "bandwidth: 1 GB/s", "bandwidth: 100 GB/s", 1)))
	require.NoError(t, err)
	require.Zero(t, m.Collective(collective.AllReduce, []int{3}, 1<<20))
	inside, across := m.Collective(collective.AllReduce, []int{0, 1},
		1<<20), m.Collective(collective.AllReduce, []int{0, 2}, 1<<20)
	require.Less(t, 50*inside, across)
	flat := collective.RingTime(collective.AllReduce, 4, 1<<28, m.Remote)
	require.Less(t, m.Collective(collective.AllReduce, []int{0, 1, 2, 3}, 1<<28), 0.7*flat,
		"the hierarchy sends half as much over the network")
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("network:\n  cables: 0-1 a\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Read("f.yaml", text)
		if err == nil {
			_, err = Read("g.yaml", m.Write())
			require.NoError(t, err)
		}
	})
}
