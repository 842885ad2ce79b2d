// Package jobs carries out work on data: annotations to shards (Convert), samples to packed samples
// (PackShards), texts to token ids (Tokenize). What was cut off goes on where it was, to the same bytes, and
// parts of the work may be done by other hosts.
package jobs
