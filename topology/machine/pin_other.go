//go:build !linux

package machine

// PinThread does nothing where threads cannot be kept on a core.
func PinThread(int) {}
