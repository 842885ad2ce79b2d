package head

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// TestCheckSampled: of many hosts each measures a few ways, all of them at once, none of which leads to
// the same host; of few hosts every way is measured, one after the other.
func TestCheckSampled(t *testing.T) {
	for _, n := range []int{4, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			h := bare(t, t.TempDir())
			serials := map[string]string{}
			for i := range n {
				serials[fmt.Sprint("h", i+1)] = "s"
			}
			h.step(decide.Enroll{Serials: serials})
			var at, most atomic.Int32
			all := make(chan struct{}) // closed when so many measure at once as should
			for i := range n {
				name := fmt.Sprint("h", i+1)
				near, far := net.Pipe()
				t.Cleanup(func() { near.Close() })
				l := newLink(control.NewConn(near, nil))
				conn := h.open(l)
				h.step(decide.Connect{Conn: conn, Name: name, Hello: control.Message{Info: &control.Info{Name: name,
					Pid: 1, Probe: name}}})
				go l.write(make(chan struct{}))
				go func() {
					for c := control.NewConn(far, nil); ; {
						m, err := c.Receive(0)
						if err != nil {
							return
						}
						if m.Kind != control.Probe {
							continue
						}
						if now := at.Add(1); now > most.Load() {
							if most.Store(now); n > checkAll && int(now) == n {
								close(all)
							}
						}
						if n > checkAll {
							<-all
						}
						at.Add(-1)
						var links []control.Link
						for _, p := range m.Peers {
							links = append(links, control.Link{From: name, To: p.Node, Rate: 1})
						}
						h.measured(control.Message{Code: m.Code, Links: links})
					}
				}()
			}
			w := httptest.NewRecorder()
			h.check(w, httptest.NewRequest("POST", "/v1/check", nil))
			var links []control.Link
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &links))
			ways, turns := map[string]bool{}, len(strides(n))
			if n <= checkAll {
				require.EqualValues(t, 1, most.Load(), "one after the other")
				turns = n - 1
			}
			for _, l := range links {
				require.Empty(t, l.Fault)
				ways[l.From+l.To] = true
			}
			require.Len(t, ways, n*turns)
			require.Len(t, links, n*turns)
		})
	}
}

// TestStrides: each turn of a sample leads to other hosts, and there are as many as are wanted.
func TestStrides(t *testing.T) {
	for n := range 2000 {
		seen := map[int]bool{}
		for _, s := range strides(n) {
			require.Less(t, s, n)
			require.False(t, seen[s], "%d hosts: %v", n, strides(n))
			seen[s] = true
		}
		require.Len(t, seen, max(0, min(n-1, checkTurns)))
	}
}
