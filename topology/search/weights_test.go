package search

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

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
	plain := s.Update(one, w)
	s.Through = 12
	copies := m.Copy
	m.Copy = 1e13
	require.Equal(t, plain, s.Update(one, w), "12 GB are copied behind 32 GB of traffic")
	m.Copy = copies
	host := s.Update(one, w)
	require.InEpsilon(t, 12e9/m.Copy, host, 0.01)
	require.Greater(t, host, 10*plain)
	s.Devices = 4
	require.Less(t, s.Update(&Candidate{DP: 4, TP: 1, Zero: 1}, w), host/2)
}
