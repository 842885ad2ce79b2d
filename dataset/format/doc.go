// Package format reads and writes the file formats of training data.
//
// # What it is
//
// Each format (JSON lines, Parquet, webdataset shards, Megatron's indexed files, Energon, LeRobot, SQLite,
// chats in several layouts, …) is one file that registers itself with package dataset, mostly with a
// writer beside the reader, and a test holds every pair to the round trip. Sample types (sampletype*.go)
// turn a document's fields into conversations.
//
// # How data flows
//
// A reader gives documents by number, or streams them, with the place that each came from (file, line or
// offset). Nothing decides order here: package dataset draws it. Annotations are read as the samples that
// converting them would write (annotations.go); what writes whole data sets is package jobs.
//
// # What always holds
//
//   - A document that cannot be read becomes a dataset.BadSample with its place and one cause; it is
//     counted and quarantined, never skipped without a word.
//   - Sizes are checked before anything is allocated, and names in archives cannot leave their folder.
//   - Output is the same bytes on every machine and with any number of workers.
//
// # Where to begin
//
// jsonl.go is the shortest format; tar.go and webdataset.go the most used; every parser has a fuzz test.
package format
