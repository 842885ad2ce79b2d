// Package exit says how a command ends: the codes that scripts rely on, and errors that carry one. Errors of
// checkpoints, data and configurations have types of their own, which the command line maps; those here have
// no better home.
package exit

import "fmt"

// Exit codes of lfactor.
const (
	Failed      = 1   // the command failed
	Usage       = 2   // the command line or a configuration is wrong
	Fit         = 3   // it does not fit into memory
	Data        = 4   // the budget of bad data is spent
	Unreachable = 5   // the cluster cannot be reached, or refuses
	Corrupt     = 6   // saved state is damaged or missing
	Interrupted = 130 // ended by SIGINT
)

// Code is an exit code with what it means.
type Code struct {
	Code int
	Doc  string
}

// Codes are all of them: docs/json.md and `lfactor help` have this table.
func Codes() []Code {
	return []Code{
		{0, "done; or stopped by SIGTERM after a durable save"},
		{Failed, "failed; `ckpt diff`, `compare` and `audit`: something differs"},
		{Usage, "wrong command line or configuration"},
		{Fit, "does not fit into memory"},
		{Data, "the budget of bad data is spent"},
		{Unreachable, "the cluster cannot be reached, or refuses"},
		{Corrupt, "saved state is damaged or missing"},
		{Interrupted, "interrupted by SIGINT; a run has saved"},
	}
}

// Error is an error with its exit code.
type Error struct {
	Err  error
	Code int
}

// Error implements error; one whose text is empty was reported already.
func (e Error) Error() string { return e.Err.Error() }

// Unwrap gives the error without its code.
func (e Error) Unwrap() error { return e.Err }

// ExitCode is the code; it crosses processes of a run with the error.
func (e Error) ExitCode() int { return e.Code }

// With gives an error its exit code.
func With(err error, code int) error { return Error{err, code} }

// Usagef is a fault of the command line or of a configuration.
func Usagef(format string, a ...any) error { return With(fmt.Errorf(format, a...), Usage) }
