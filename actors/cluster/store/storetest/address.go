package storetest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ports that no system gives to those who ask for any: Linux begins at 32768, others at 49152.
const portFirst, portsAll = 10_000, 20_000

// Address is one of this machine for a server that is told where it listens before it does: nobody else is
// given it meanwhile, as one that was free for a moment would be to the next connection.
func Address(t testing.TB) string {
	t.Helper()
	var err error
	for range 100 {
		// other tests look for some at the same time
		addr := fmt.Sprint("127.0.0.1:", portFirst+rand.IntN(portsAll))
		var ln net.Listener
		if ln, err = net.Listen("tcp", addr); err == nil {
			require.NoError(t, ln.Close())
			return addr
		}
	}
	t.Fatalf("no port is free: %v", err)
	return ""
}
