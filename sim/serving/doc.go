// Package serving gives the times that clients of a server see: its queue and its engine, which are those of package
// serve, without a model and in virtual time. What a step takes is for the caller to say, as measured (Times) or of a
// described machine.
//
// The same seed gives the same history.
package serving
