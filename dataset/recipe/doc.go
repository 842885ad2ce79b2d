// Package recipe carries out a dataflow of curation steps (package curate) over inputs in any format that is
// registered: `lfactor data run`. A recipe is cut into stages. A stage reads blocks of its sources, each
// some documents beside each other, takes them through steps without state, and ends where documents are
// signed by a step with state or are written. Which blocks there are follows from the inputs alone, and a
// block's file from its documents, so that the bytes are the same whatever the number of workers and hosts,
// and whatever was cut off: a block that is there is not made again.
//
// What is in memory is bounded: a block for each worker, and as much as the recipe's memory says for sorting
// keys and, behind that, for joining clusters (eight bytes for each document). What is more lies on disk, in
// the folder .work of the output.
package recipe
