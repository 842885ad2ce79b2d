// Package grammar says which bytes may come next in a text that is to have a form: a JSON value of a schema, a
// match of a regular expression, a sentence of a grammar in GBNF.
//
// # What it is
//
// A [Grammar] is rules over bytes, as a program for a machine with a stack (a pushdown automaton). Its states are
// made when they are met: a state is the set of places, each with its stack, where a text may be, and all
// texts that lead to one set share it, so that a byte costs one look into a table. A [Vocabulary] turns a state into
// the set of tokens that may follow, whatever a tokenizer cuts texts into: a token may follow if its bytes do, also
// where it spans several parts of the form or ends within a character.
//
// # What always holds
//
//   - A text is of the form if and only if each of its bytes was allowed and it [State.Ends].
//   - What a schema says and nobody can hold to is an error that names the key, and never passed over.
package grammar
