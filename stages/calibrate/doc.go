// Package calibrate rounds the weights of a model to few bits by what text makes its layers read.
//
// # What it is
//
// [Run] walks through the blocks of a model one by one: a block reads what the blocks before it gave for each sequence
// of a text, a [Backend] in between takes the sums xᵀx of what its linear layers read, and a method chooses the codes
// of their weights by those. GPTQ (arXiv:2210.17323) puts a column's error onto the columns behind it; the block then
// runs anew with its rounded weights, so that later blocks read what they will. AWQ (arXiv:2306.00978) moves magnitude
// from weights to what the layer before gives, where that can be taken along, and reads what whole weights give.
//
// # What always holds
//
//   - In memory are one block's weights, its sums, the states between two blocks, and the codes so far.
//   - The same model, text and settings give the same codes.
//   - A layer that no token reached, or whose shape has no place in the layout, stays as it is and is named.
package calibrate
