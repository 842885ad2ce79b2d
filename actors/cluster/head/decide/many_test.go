package decide

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// crowd is a head that many hosts come to.
type crowd struct {
	t              *testing.T
	h              *Head
	commits, bytes int
	waits          *Commit
	wakes          []Wake
}

// step gives the head an input, and takes in what it does.
func (c *crowd) step(in Input) {
	for _, e := range c.h.Step(time.Unix(1e9, 0), in) {
		switch e := e.(type) {
		case Commit:
			c.commits++
			c.waits = &e
		case Wake:
			if e.After < time.Second { // others are for hosts that are lost
				c.wakes = append(c.wakes, e)
			}
		case Send:
			text, err := json.Marshal(e.M)
			require.NoError(c.t, err)
			c.bytes += len(text)
		}
	}
}

// store answers the commit that waits, if one does.
func (c *crowd) store() {
	if c.waits != nil {
		n := c.waits.N
		c.waits = nil
		c.step(Stored{n})
	}
}

// elapse lets the time pass that the head waits before it tells of hosts.
func (c *crowd) elapse() {
	for len(c.wakes) > 0 {
		w := c.wakes[0]
		c.wakes = c.wakes[1:]
		c.step(Elapsed{w.Timer})
	}
}

// TestManyHosts: a thousand hosts come at once, with -long five thousand. What they are told grows with their number and
// not with its square, and the store gets what has come meanwhile in one commit. Those that get a process hear who is
// there, and of one that is lost.
func TestManyHosts(t *testing.T) {
	hosts := 1000
	if *long {
		hosts = 5000
	} else {
		t.Log("1,000 hosts instead of 5,000: add -long")
	}
	term := (&memory{}).lead()
	h, _, err := Load(Options{Term: term.Number(), Binary: "bin"}, term)
	require.NoError(t, err)
	c := &crowd{t: t, h: h}
	serials := map[string]string{}
	for i := range hosts {
		serials[fmt.Sprintf("host%04d", i)] = "serial"
	}
	c.step(Enroll{Serials: serials, Last: true})
	for i := range hosts {
		name := fmt.Sprintf("host%04d", i)
		c.step(Connect{Conn: int64(i + 1), Name: name, Serial: "serial", Hello: control.Message{
			Info: &control.Info{Name: name, Binary: "bin", Pid: 1, Probe: "10.0.0.1:7400"}}})
		if i%50 == 49 { // the store takes as long as fifty of them
			c.store()
		}
		if i%100 == 99 {
			c.elapse()
		}
	}
	for c.waits != nil {
		c.store()
	}
	c.elapse()
	require.Equal(t, hosts, h.Connected())
	require.Less(t, c.commits, hosts/40)
	require.Less(t, c.bytes, 200*hosts)
	t.Logf("%d commits, %.1f MB to all hosts", c.commits, float64(c.bytes)/1e6)
	c.bytes = 0
	c.step(Submit{Ask: 1, By: By{Name: "u", Role: "admin"}, Spec: control.Spec{Procs: 1, Args: []string{"train"}, Dir: "/d", Name: "x", User: "u"}})
	for c.waits != nil {
		c.store()
	}
	c.elapse()
	require.Greater(t, c.bytes, 25*hosts, "the host of its first process hears of all")
	require.Less(t, c.bytes, 60*hosts)
	c.bytes = 0
	c.step(Gone{Host: "host0500", Conn: 501, Why: "the connection ended"})
	c.store()
	c.elapse()
	require.Greater(t, c.bytes, 0)
	require.Less(t, c.bytes, 1000)
}
