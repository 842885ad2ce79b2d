// Package sample generates text from a model on one device, with a cache of keys and values.
//
// # What it is
//
// A [Generator] records the model's blocks for a number of tokens on a tape without gradients and runs
// the trace with the cache as an operand: a prompt first, then one token at a time. It needs no actor:
// generation is one device's loop. [Draw] chooses the next token from logits by temperature, top-k and top-p.
//
// # What always holds
//
//   - The logits of a token are those that training computes for the same text, within the rounding of the
//     dtype, whichever way the tokens came: as a prompt, or one by one.
//   - The same seed gives the same text.
package sample
