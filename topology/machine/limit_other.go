//go:build !unix

package machine

// FewFiles is the error as it is.
func FewFiles(err error) error { return err }

// FileLimit is not known.
func FileLimit() int64 { return 0 }
