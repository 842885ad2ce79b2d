//go:build cuda

package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/cuda"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
	"github.com/lfactor/lfactor/stages/family"
)

// emulatedChannels is emulatedRanks with the stand-in of NCCL.
func emulatedChannels(t *testing.T) (func(int) kernels.Backend, *emulate.Driver) {
	e := emulate.New(t)
	t.Setenv(cuda.ExchangeVariable, e.Path)
	return emulatedRanks(t), e
}

// everywhere says that all ranks receive by channel.
func everywhere(int) bool { return true }

// TestChannelGrid: what devices of two processes send each other goes from device to device, under plans
// with each kind of exchange; the bits are those of one process, and of exchanges through the host.
func TestChannelGrid(t *testing.T) {
	for _, v := range []variant{{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}, {pp: 1, dp: 1, tp: 2, sp: true,
		schedule: "gpipe"}, {pp: 1, dp: 2, tp: 1, zero: 1, schedule: "gpipe"}, {pp: 1, dp: 2, tp: 1, zero: 3,
		schedule: "gpipe"}, {pp: 2, dp: 1, tp: 2, schedule: "1f1b", sp: true}} {
		m := tiny(true)
		var want []float64
		t.Run(fmt.Sprint(v, " one process"), func(t *testing.T) {
			device, _ := emulatedChannels(t)
			want, _ = v.train(t, m, 3, device)
		})
		for name, far := range map[string]func(int) bool{"by channels": everywhere,
			"through the host": nil} {
			t.Run(fmt.Sprint(v, " ", name), func(t *testing.T) {
				device, e := emulatedChannels(t)
				e.Set(t, "devices", 4, 2) // the library refuses two ranks on one
				before := e.Sent()
				got, err := v.pair(t, m, peers{steps: 3, backend: device, joined: far})
				require.NoError(t, err)
				require.Equal(t, want, got)
				require.Equal(t, far == nil, e.Sent() == before, "whether the library carries anything")
			})
		}
	}
}

// TestChannelLibraryMissing: a rank that is sent something by channel and has no library for it ends the run
// with an error that says so.
func TestChannelLibraryMissing(t *testing.T) {
	device, _ := emulatedChannels(t)
	v := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}
	_, err := v.pair(t, tiny(true), peers{steps: 3, joined: everywhere,
		backend: func(r int) kernels.Backend {
			if r == 1 {
				return cpu.New(1)
			}
			return device(r)
		}})
	require.ErrorContains(t, err, "sends from device to device, and there is no library for that here: install "+
		"it on all hosts, or set LFACTOR_LIBNCCL=none on all")
}

// peers is how a test runs a variant in several processes.
type peers struct {
	steps   int64
	backend func(int) kernels.Backend
	joined  func(int) bool
}

// process runs one of two processes; dir has their sockets. A lost process ends the run.
func (v variant) process(t *testing.T, m *family.Model, k peers, proc int, dir string,
	ready func() error) (losses []float64, err error) {
	l, o := v.run(t, m, k.steps, k.backend, &losses)
	sockets, err := links.Unix(dir, proc)
	require.NoError(t, err)
	end := links.New(sockets, proc, 0, [32]byte{1}, func(r actors.Ref) int { return l.OwnerOf(r, 2) })
	lost := make(chan error, 1)
	end.Lost = func(_ int, _ uint32, cause error) {
		select {
		case lost <- cause:
		default:
		}
	}
	o.Proc, o.Procs, o.Links, o.Ready, o.Joined, o.Orphaned = proc, 2, end, ready, k.joined, lost
	err = Run(l, o)
	return losses, err
}

// pair runs two processes as two systems of this one.
func (v variant) pair(t *testing.T, m *family.Model, k peers) ([]float64, error) {
	dir, err := os.MkdirTemp("", "lf") // a socket's path may be at most 107 bytes
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	began, ended := make(chan bool), make(chan error)
	go func() {
		_, err := v.process(t, m, k, 1, dir, func() error { close(began); return nil })
		ended <- err
	}()
	losses, err := v.process(t, m, k, 0, dir, func() error { <-began; return nil })
	return losses, errors.Join(err, <-ended)
}

const envPeer = "LFACTOR_TEST_PEER" // folder of sockets: this process is the second of TestChannelProcesses

// peer starts this test binary once more, as the second process of a test.
func peer(t *testing.T, test, dir string) (p *exec.Cmd, said *strings.Builder) {
	p, said = exec.Command(os.Args[0], "-test.run=^"+test+"$"), &strings.Builder{}
	p.Env = append(os.Environ(), envPeer+"="+dir)
	p.Stdout, p.Stderr = said, said
	require.NoError(t, p.Start())
	return p, said
}

// TestChannelProcesses: the same between two processes of the system.
func TestChannelProcesses(t *testing.T) {
	v, m := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}, small(t, configs.Model{ModelType: "llama"})
	device, e := emulatedChannels(t)
	k := peers{steps: 5, joined: everywhere, backend: device}
	now := func() error { return nil }
	if dir := os.Getenv(envPeer); dir != "" {
		_, err := v.process(t, m, k, 1, dir, now)
		require.NoError(t, err)
		return
	}
	want, _ := v.train(t, m, 5, func(int) kernels.Backend { return cpu.New(1) })
	dir, err := os.MkdirTemp("", "lf")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	p, said := peer(t, "TestChannelProcesses", dir)
	before := e.Sent()
	got, err := v.process(t, m, k, 0, dir, now)
	require.NoError(t, err)
	require.NoError(t, p.Wait(), "%s", said)
	require.Len(t, got, 5)
	require.InEpsilonSlice(t, want, got, 1e-5)
	require.Less(t, before, e.Sent())
}

// TestChannelPeerDies: a process that is killed while its device exchanges with ours is a lost process;
// nothing waits for it for ever, on the host or on the device.
func TestChannelPeerDies(t *testing.T) {
	v, m := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}, small(t, configs.Model{ModelType: "llama"})
	device, _ := emulatedChannels(t)
	k := peers{steps: 1e6, joined: everywhere, backend: device}
	now := func() error { return nil }
	if dir := os.Getenv(envPeer); dir != "" {
		_, err := v.process(t, m, k, 1, dir, now)
		require.NoError(t, err)
		return
	}
	dir, err := os.MkdirTemp("", "lf")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	p, _ := peer(t, "TestChannelPeerDies", dir)
	sockets, err := links.Unix(dir, 0)
	require.NoError(t, err)
	l, o := v.run(t, m, k.steps, device, nil)
	end := links.New(sockets, 0, 0, [32]byte{1}, func(r actors.Ref) int { return l.OwnerOf(r, 2) })
	lost := make(chan error, 100)
	end.Lost = func(_ int, _ uint32, cause error) {
		select {
		case lost <- cause:
		default:
		}
	}
	steps := 0
	o.Observe = func(m actors.Message) {
		if m.Text == core.TopicStep {
			if steps++; steps == 3 {
				_ = p.Process.Kill()
			}
		}
	}
	o.Procs, o.Links, o.Ready, o.Joined, o.Orphaned = 2, end, now, everywhere, lost
	require.Error(t, Run(l, o))
	require.Error(t, p.Wait())
	require.GreaterOrEqual(t, steps, 3)
}
