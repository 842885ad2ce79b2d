//go:build !linux

package host

import "net"

// peerOf is known on Linux only.
func peerOf(net.Conn) int { return 0 }

// StateOf is known on Linux only.
func StateOf(int) string { return "" }
