//go:build !linux

package host

import "net"

// peerOf and stateOf are known on Linux only.
func peerOf(net.Conn) int { return 0 }

func stateOf(int) string { return "" }
