package edge

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// from is a connection of an address.
type from struct {
	net.Conn
	at string
}

// RemoteAddr implements net.Conn.
func (f *from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.at), Port: 1} }

// TestCrowd: a stranger who opens connections and says nothing drops his own, whoever comes next; where all have as many,
// the oldest of all goes; and those who left have no place any more.
func TestCrowd(t *testing.T) {
	c := Crowd{Most: 8}
	var strangers []*from
	member := &from{at: "10.0.0.2"}
	require.Nil(t, c.Enter(member))
	for i := range 20 {
		s := &from{at: "10.0.0.9"}
		strangers = append(strangers, s)
		dropped := c.Enter(s)
		if i < 7 {
			require.Nil(t, dropped)
			continue
		}
		require.Same(t, strangers[i-7], dropped)
		require.False(t, c.Leave(dropped), "it has gone")
	}
	second := &from{at: "10.0.0.3"}
	require.Same(t, strangers[13], c.Enter(second), "not the member, who is the oldest of all")
	require.True(t, c.Leave(member))
	require.True(t, c.Leave(second))
	for _, s := range strangers[14:] {
		require.True(t, c.Leave(s))
	}
	var all []*from
	for i := range 9 {
		all = append(all, &from{at: net.IPv4(10, 0, 1, byte(i)).String()})
		dropped := c.Enter(all[i])
		if i < 8 {
			require.Nil(t, dropped)
		} else {
			require.Same(t, all[0], dropped)
		}
	}
	require.Len(t, c.of, 8)
}
