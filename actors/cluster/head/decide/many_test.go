package decide

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/store"
)

// TestManyHosts: a thousand hosts come at once. Each is told once who is there; the others hear of one
// that has come, whatever their number, and the store gets what has come meanwhile in one commit.
func TestManyHosts(t *testing.T) {
	const hosts = 1000
	term, err := store.NewMemory().Open("head").Lead("head")
	require.NoError(t, err)
	h, _, err := Load(Options{Term: term.Number(), Binary: "bin"}, term)
	require.NoError(t, err)
	now := time.Unix(1e9, 0)
	var commits, bytes, most int
	var waits *Commit
	step := func(in Input) {
		for _, e := range h.Step(now, in) {
			switch e := e.(type) {
			case Commit:
				commits++
				waits = &e
			case Send:
				text, err := json.Marshal(e.M)
				require.NoError(t, err)
				bytes += len(text)
				if e.M.Kind == control.Change {
					most = max(most, len(text))
				}
			}
		}
	}
	serials := map[string]string{}
	for i := range hosts {
		serials[fmt.Sprintf("host%04d", i)] = "serial"
	}
	step(Enroll{Serials: serials, Last: true})
	for i := range hosts {
		name := fmt.Sprintf("host%04d", i)
		step(Connect{Conn: int64(i + 1), Name: name, Serial: "serial", Hello: control.Message{
			Info: &control.Info{Name: name, Binary: "bin", Pid: 1, Probe: "10.0.0.1:7400"}}})
		if waits != nil && i%50 == 49 { // the store takes as long as fifty of them
			n := waits.N
			waits = nil
			step(Stored{n})
		}
	}
	for waits != nil {
		n := waits.N
		waits = nil
		step(Stored{n})
	}
	require.Equal(t, hosts, h.Connected())
	require.Less(t, commits, hosts/40)
	require.Less(t, most, 100, "bytes of a word about one host")
	require.Less(t, bytes, 120<<20)
	t.Logf("%d commits, %.1f MB to all hosts, %d bytes about one", commits, float64(bytes)/1e6, most)
	// one that is lost: a word to each of the others
	bytes = 0
	step(Gone{Host: "host0500", Conn: 501, Why: "the connection ended"})
	step(Stored{waits.N})
	require.Less(t, bytes, 100*hosts)
}
