package decide

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// TestRepeatedRequests: a request for a process that is repeated starts none, and is answered by what
// became of it; one that comes late changes nothing.
func TestRepeatedRequests(t *testing.T) {
	h := &Head{agents: map[string]*agent{}}
	for i, name := range []string{"a", "b"} {
		h.agents[name] = &agent{Member: Member{Name: name}, conn: int64(i + 1)}
	}
	told := func(name string) (out []control.Message) {
		for _, e := range h.said {
			if s := e.(Send); s.Conn == h.agents[name].conn {
				out = append(out, s.M)
			}
		}
		h.said = nil
		return out
	}
	j := &Job{ID: "4", State: Running, Procs: []Proc{{Host: "a", Gen: 1},
		{Host: "b", Gen: 2, Pid: 7, Ready: true, Ask: 5}}}
	h.fromLeader(j, control.Message{Kind: control.Start, Peer: 1, At: 5})
	placed := control.Message{Kind: control.Placed, Job: "4", Peer: 1, Gen: 2, At: 5, Text: "pid 7 on b"}
	ready := control.Message{Kind: control.Ready, Job: "4", Peer: 1, Gen: 2, At: 5}
	require.Equal(t, []control.Message{placed, ready}, told("a"))
	h.fromLeader(j, control.Message{Kind: control.Start, Peer: 1, At: 4})
	require.Empty(t, told("a"), "another was asked for since")
	h.fromLeader(j, control.Message{Kind: control.Kill, Peer: 1, At: 4})
	require.Empty(t, told("b"), "it was for the one before")
	h.fromLeader(j, control.Message{Kind: control.Kill, Peer: 1, At: 5})
	require.Equal(t, []control.Message{{Kind: control.Kill, Job: "4", Proc: 1, Gen: 2}}, told("b"))
	p := &j.Procs[1]
	p.Over, p.Why, p.Code = true, "was killed", -1
	h.tellState(j, 1)
	require.Equal(t, []control.Message{placed, ready, {Kind: control.Exited, Job: "4", Peer: 1, Gen: 2, At: 5,
		Text: "was killed", Code: -1}}, told("a"))
}
