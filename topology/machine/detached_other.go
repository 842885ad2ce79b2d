//go:build !unix

package machine

import "errors"

// Detached is not possible here.
func Detached(string, ...string) (int, error) {
	return 0, errors.New("this system has no processes that outlive their parent's terminal")
}

// DetachedIn is not possible here.
func DetachedIn(dir, _ string, command ...string) (int, error) { return Detached(dir, command...) }

// Holder is not known here.
func Holder(string) int { return 0 }
