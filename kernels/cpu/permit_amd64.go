//go:build !linux

package cpu

// permitTiles is false where no call to permit AMX tiles is known.
func permitTiles() bool { return false }
