// Package quant is weights in few bits, as libraries publish them: read as the numbers that they stand for, or as they
// lie in memory, and written. It merges PEFT's adapters into such weights and into others.
package quant
