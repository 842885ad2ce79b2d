//go:build !linux

package process

// PinThread does nothing where threads cannot be kept on a core.
func PinThread(int) {}
