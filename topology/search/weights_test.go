package search

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/collective"
	"github.com/lfactor/lfactor/topology/cost"
)

// TestUpdateThroughHost: an update whose state waits on the host takes as long as its copies where these
// take longer than the update itself, for the share of the state that a rank has.
func TestUpdateThroughHost(t *testing.T) {
	text, err := os.ReadFile("../../configs/clusters/h100.yaml")
	require.NoError(t, err)
	m, err := cost.Read("h100", text)
	require.NoError(t, err)
	s := &Space{Machine: m, Devices: 1, Param: 2, State: 12, Traffic: 32, groups: newGroups()}
	w := Weights{Params: 1e9, Tensors: 100}
	one := &Candidate{DP: 1, TP: 1}
	plain := s.Update(one, w, 0)
	s.Through = 12
	copies := m.Copy
	m.Copy = 1e13
	require.Equal(t, plain, s.Update(one, w, 0), "12 GB are copied behind 32 GB of traffic")
	m.Copy = copies
	host := s.Update(one, w, 0)
	require.InEpsilon(t, 12e9/m.Copy, host, 0.01)
	require.Greater(t, host, 10*plain)
	s.Devices = 4
	require.Less(t, s.Update(&Candidate{DP: 4, TP: 1, Zero: 1}, w, 0), host/2)
}

// TestHidden: of four buckets' worth of gradients three travel during the last backward, as far as it is long
// enough, and where more than two replicas add up parts of the rows only the first exchange can.
func TestHidden(t *testing.T) {
	text, err := os.ReadFile("../../configs/clusters/h100.yaml")
	require.NoError(t, err)
	m, err := cost.Read("h100", text)
	require.NoError(t, err)
	s := &Space{Machine: m, Devices: 8, Param: 2, State: 12, Traffic: 32, groups: newGroups()}
	w := Weights{Params: 1e9, Tensors: 100}
	for _, x := range []struct {
		dp, zero int
		share    float64 // of what is exchanged that can be hidden
	}{{2, 0, 0.75}, {4, 0, 0.375}, {4, 1, 0.75}, {4, 2, 0}} {
		c := &Candidate{DP: x.dp, TP: 1, Zero: x.zero}
		s.Bucket = 0
		late := s.Update(c, w, 10)
		how := collective.AllReduce
		if x.zero == 1 {
			how = collective.ReduceScatter
		}
		sum := m.Collective(how, s.Group(x.dp, 1), 4e9)
		s.Bucket = 1e9
		require.InDelta(t, late-x.share*sum, s.Update(c, w, 10), 1e-9, "%+v", x)
		if x.share > 0 {
			require.InDelta(t, late-0.75*1e-3, s.Update(c, w, 1e-3), 1e-9, "%+v: a short backward", x)
		}
		s.Bucket = 5e9
		require.Equal(t, late, s.Update(c, w, 10), "%+v: less than a bucket", x)
	}
}
