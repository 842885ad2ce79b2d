package cluster_test

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/store/storetest"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/topology/machine"
)

var (
	stubCount = flag.Int("agents", 1000, "how many agents TestThousandAgents has")
	stubWait  = flag.Duration("within", time.Minute, "how long they may take to come")
)

// stub is an agent that joins, beats and listens, and does nothing else.
type stub struct {
	id    *trust.Identity
	info  control.Info
	up    atomic.Bool
	heard atomic.Int64  // messages of the head
	again atomic.Int64  // connections after the first
	why   atomic.Value  // the last one ended
	gone  chan struct{} // closed when it is to be silent
}

// attend holds a connection until the stub is to be gone.
func (s *stub) attend(ctx context.Context, addr string) error {
	c, err := control.Dial(ctx, addr, s.id, "/v1/agent")
	if err != nil {
		return err
	}
	if err := c.Send(control.Message{Kind: control.Hello, Info: &s.info}); err != nil {
		return err
	}
	m, err := c.Receive(30 * time.Second)
	if err != nil {
		return err
	}
	s.up.Store(true)
	stop := make(chan struct{})
	defer close(stop)
	defer c.Close()
	go func() {
		beat := time.NewTicker(control.Beats + time.Duration(m.At))
		defer beat.Stop()
		for {
			select {
			case <-s.gone:
			case <-stop:
			case <-ctx.Done():
			case <-beat.C:
				if c.Send(control.Message{Kind: control.Beat}) == nil {
					continue
				}
			}
			c.Close()
			return
		}
	}()
	for {
		if _, err := c.Listen(control.HeadSilence + 10*time.Duration(m.At)); err != nil {
			return err
		}
		s.heard.Add(1)
	}
}

// live attends again and again, as an agent does, until the stub is to be gone.
func (s *stub) live(ctx context.Context, addr string) {
	for {
		err := s.attend(ctx, addr)
		select {
		case <-s.gone:
			return
		case <-ctx.Done():
			return
		case <-time.After(300*time.Millisecond + rand.N(700*time.Millisecond)):
			if s.up.Load() {
				s.again.Add(1)
				s.why.Store(err.Error())
			}
		}
	}
}

// resident is a process' memory in bytes, by the system's word for it.
func resident(t *testing.T, pid int, word string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, word); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return kib << 10
		}
	}
	t.Fatal("no " + word)
	return 0
}

// enrolled is the directory of a head whose members are so many stubs, and an admin of its cluster.
func enrolled(t *testing.T, agents int) (headDir string, admin *trust.Identity, stubs []*stub) {
	dir := t.TempDir()
	ca, err := trust.NewCA("test", time.Now())
	require.NoError(t, err)
	headDir = filepath.Join(dir, "head")
	require.NoError(t, os.MkdirAll(headDir, 0o700))
	require.NoError(t, ca.Save(headDir))
	key, err := trust.NewKey()
	require.NoError(t, err)
	issue := func(dir string, s trust.Subject, key *ecdsa.PrivateKey) (*trust.Identity, string) {
		cert, err := ca.Issue(s, &key.PublicKey, time.Now(), time.Hour)
		require.NoError(t, err)
		require.NoError(t, trust.SaveIdentity(dir, ca.Cert, cert, key))
		id, err := trust.Load(dir, nil)
		require.NoError(t, err)
		return id, trust.Serial(cert)
	}
	issue(headDir, trust.Subject{Name: trust.HeadName, Role: trust.Head}, key)
	admin, _ = issue(filepath.Join(dir, "admin"), trust.Subject{Name: "u", Role: trust.Admin}, key)
	binary, err := machine.HashFile(clitest.BuiltHead(t))
	require.NoError(t, err)
	serials := map[string]string{}
	stubs = make([]*stub, agents)
	for i := range stubs {
		name := fmt.Sprintf("h%04d", i)
		id, serial := issue(filepath.Join(dir, "agents", name), trust.Subject{Name: name, Role: trust.Agent},
			key)
		serials[name] = serial
		stubs[i] = &stub{id: id, gone: make(chan struct{}), info: control.Info{Name: name, Addr: "127.0.0.1",
			Cores:  8,
			Binary: binary, Version: cli.Version(), Memory: 64 << 30, Disk: 1 << 40, Pid: i + 1}}
	}
	require.NoError(t, head.Enroll(headDir, serials))
	return headDir, admin, stubs
}

// TestThousandAgents: a head of its own process takes a thousand agents in within a minute and 300 MB (5,000 with -agents
// 5000, and 1.1 GB), knows within three seconds that one is gone, and when it is killed the next one has all of them back
// and calls none lost. The agents are stubs in this process: they share its processors with
// the head, which a thousand hosts would not.
func TestThousandAgents(t *testing.T) {
	longOnly(t, "a thousand agents on one machine: decide's TestManyHosts has as many without connections")
	agents := *stubCount
	headDir, admin, stubs := enrolled(t, agents)
	addr := storetest.Address(t)
	cmd := headOf(t, headDir, addr)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now()
	for _, s := range stubs {
		go s.live(ctx, addr)
	}
	client := control.NewClient([]string{addr}, admin)
	ready := func() (n int) {
		var now head.Status
		if client.Do(ctx, http.MethodGet, "/v1/status", nil, &now) != nil {
			return 0
		}
		for _, h := range now.Hosts {
			if h.State == "ready" {
				n++
			}
		}
		return n
	}
	all := func() bool { return ready() == agents }
	require.Eventually(t, all, *stubWait, time.Second)
	took := time.Since(began)
	close(stubs[500].gone)
	left := time.Now()
	require.Eventually(t, func() bool { return ready() == agents-1 }, *stubWait, 50*time.Millisecond)
	known := time.Since(left)
	// while all come at once more is on its way, as the peak says
	most := 200e3*int64(agents) + 100e6
	memory, peak := int64(0), resident(t, cmd.Process.Pid, "VmHWM:")
	require.Eventually(t, func() bool {
		memory = resident(t, cmd.Process.Pid, "VmRSS:")
		return memory < most
	}, 30*time.Second, 100*time.Millisecond)
	heard, again := int64(0), int64(0)
	for _, s := range stubs {
		heard, again = heard+s.heard.Load(), again+s.again.Load()
	}
	t.Logf("%d messages of the head, %d connections made again", heard, again)
	t.Logf("%d agents ready after %v; the head has %d MB, %d at most; a lost one is known after %v", agents,
		took.Round(time.Millisecond), int(memory/1e6), int(peak/1e6), known.Round(time.Millisecond))
	if agents == 1000 && *stubWait == time.Minute {
		require.Less(t, known, 3*time.Second)
	}
	stubs[500].gone = make(chan struct{})
	go stubs[500].live(ctx, addr)
	require.Eventually(t, all, *stubWait, time.Second)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	killed := time.Now()
	headOf(t, headDir, addr)
	require.Eventually(t, all, *stubWait, time.Second)
	t.Logf("a new head has all %d back after %v", agents, time.Since(killed).Round(time.Millisecond))
	require.Zero(t, lostSince(t, client, killed), "no host is called lost that comes back")
}

// lostSince counts the hosts that were called lost since a moment.
func lostSince(t *testing.T, client *control.Client, from time.Time) (lost int) {
	t.Helper()
	body, err := client.Open(t.Context(), http.MethodGet, "/v1/events?follow=0", nil)
	require.NoError(t, err)
	defer body.Close()
	for d := json.NewDecoder(body); d.More(); {
		var e head.Event
		require.NoError(t, d.Decode(&e))
		if e.Time.After(from) && (e.Kind == "lost" || e.Kind == "absent") {
			lost++
		}
	}
	return lost
}

// headOf starts a head in a process of its own, and waits until it is up.
func headOf(t *testing.T, dir, addr string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(clitest.BuiltHead(t), "cluster", "head", "--dir", dir, "--listen", addr)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOGC=") })
	cmd.Stderr = os.Stderr
	_ = os.Remove(filepath.Join(dir, control.UpFile)) // of the one before
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have been
		_ = cmd.Wait()         // a second time where it was
	})
	require.Eventually(t, func() bool { return machine.Exists(filepath.Join(dir, control.UpFile)) }, 2*time.Minute,
		50*time.Millisecond)
	return cmd
}
