// Package serve answers requests of many clients with one trained model, in the form of OpenAI's API:
// completions and chats, at once or as streams of server-sent events.
//
// One goroutine has the engine (stages/sample); a handler gives it a request, and takes tokens from a channel
// that has room for all that the request may draw, so that no slow client holds others up. Everything is bounded:
// the bytes of a request, the requests that wait, the time of each, the tokens of an answer.
package serve
