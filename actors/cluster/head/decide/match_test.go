package decide

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// TestMatchQueued: an agent that connects to a head while a job waits in the queue is taken in, and told
// to end what it has of jobs that are not there. A queued job has no process yet.
func TestMatchQueued(t *testing.T) {
	h := &Head{jobs: map[string]*Job{"1": {ID: "1", State: Queued}}}
	a := &agent{Member: Member{Name: "h1"}, conn: 3}
	h.match(a, []control.Proc{{Job: "7", Proc: 1, Gen: 2}})
	require.Equal(t, []Effect{Send{3, control.Message{Kind: control.Kill, Job: "7", Proc: 1, Gen: 2}},
		Send{3, control.Message{Kind: control.Forget, Job: "7"}}}, h.said)
}
