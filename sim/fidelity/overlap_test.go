package fidelity

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// TestOverlapPredicted: of the plans that sim overlap runs, overlapped microbatches are predicted to hide
// nine tenths of the exchanges where all ranks are of one stage, and four fifths where stages begin and end
// a step alone; on links that cost nothing they gain nothing.
func TestOverlapPredicted(t *testing.T) {
	for i := range overlapPlans {
		for _, bandwidth := range []float64{128e3, 1e15} {
			var o Overlapped
			require.NoError(t, o.measure(bandwidth, false, overlapJob(i, false), overlapJob(i, true)))
			x := o.Sim
			if bandwidth > 1e9 {
				require.Less(t, x[0].Exposed, 0.01*x[0].Step)
				continue
			}
			least := 0.8
			if overlapPlans[i].pp == 1 {
				least = 0.9
			}
			require.Greater(t, Hidden(x), least)
			require.Greater(t, Gain(x), 0.1)
			require.Less(t, x[1].Exposed, x[0].Exposed)
		}
	}
}

// TestPacedLinks: a message takes its plan's bytes over the bandwidth beside the latency, one without tensors
// nothing; and it is let through once, when that has passed.
func TestPacedLinks(t *testing.T) {
	l, err := layout.New(overlapJob(1, true))
	require.NoError(t, err)
	p := &pacedLinks{l: l, perByte: 1e3, late: map[letter]bool{}}
	port := &p.l.Ports[0]
	m := actors.Message{Kind: actors.Activation, Port: port.ID, Action: plan.Action{Kind: plan.F, Stage: 1}}
	require.Equal(t, time.Duration(linkLatency+1e3*float64(port.Bytes)), p.takes(&m))
	require.Zero(t, p.takes(&actors.Message{Kind: actors.Credit}))
	require.True(t, p.filter(3, actors.Message{Kind: actors.Credit}))
	k := letter{m.From, 3, m.Kind, m.Step, m.Action.String(), m.Segment, m.Comm, m.Port}
	p.late[k] = true
	require.True(t, p.filter(3, m))
	require.Empty(t, p.late)
}
