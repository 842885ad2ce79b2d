package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/user"
)

// TestChanges: a file makes a cluster have its hosts: those that are no members come, those that are away
// come again, those that it does not have go, and where all is as written nothing is done. Who waits for
// hosts waits for its own.
func TestChanges(t *testing.T) {
	c := &user.Cluster{Hosts: []user.Host{{Name: "h1", SSH: "h1"}, {Name: "h2", SSH: "h2"}, {Name: "h3"},
		{Name: "h4", SSH: "h4"}}}
	states := map[string]string{"h1": "busy", "h2": "away", "h3": "ready", "joined": "ready", "gone": "away"}
	want := []Entry{{Name: "h5"}, {Name: "h1"}, {Name: "h2"}}
	require.Equal(t, []Change{{"h5", "add"}, {"h2", "rejoin"}}, Changes(c, states, want))
	states["h2"], states["h5"] = "drained", "ready"
	require.Empty(t, Changes(c, states, want))
	require.Equal(t, []Change{{"h2", "remove"}}, Changes(c, states, want[:2]),
		"h3 has no ssh, h4 is no member any more, the others have joined")
	require.Equal(t, []string{"h4"}, absent(c.Hosts, states))
	require.Empty(t, absent(c.Hosts[:1], states), "others are away, and nobody asked for them")
	Forget(c, "h2")
	require.Len(t, c.Hosts, 3)
}
