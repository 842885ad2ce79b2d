//go:build !linux

package machine

import "errors"

var errConfine = errors.New("this system holds no program to directories: Linux since 5.13 does, by Landlock")

// Confines says why this system does not hold programs to directories.
func Confines() error { return errConfine }

// Exec is not possible here.
func (c Confinement) Exec([]string, []string) error { return errConfine }

// As is not possible here for another user.
func As(_, _ int, do func()) { do() }
