package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/actors/cluster/store/storetest"
)

// TestMemory: the state in memory keeps the contract of one on disk, and outlives its members.
func TestMemory(t *testing.T) {
	m := store.NewMemory()
	storetest.Run(t, func(*testing.T) store.Store { return m.Open("head") })
}

// TestElect: one of several members leads, and says who does.
func TestElect(t *testing.T) {
	m := store.NewMemory()
	a, b := m.Open("a"), m.Open("b")
	require.True(t, a.Leads())
	require.Equal(t, "a", b.Leader())
	m.Elect("b")
	require.False(t, a.Leads())
	require.True(t, b.Leads())
	b.Close()
	require.Empty(t, a.Leader())
}
