// Package diffusers reads and writes the settings files of diffusers: scheduler_config.json, and the
// config.json of a folder with a model.
//
// # What it is
//
// The keys of a file are the fields of a struct with json tags, those of embedded structs among them, whose
// values before reading are diffusers' defaults. [Faults] collects what is wrong with a file, so that all of
// it is reported at once, each with file, line and key.
//
// # What always holds
//
//   - A key that nobody has, one given twice, and a value of another type are faults.
//   - [Marshal] writes what diffusers would, and reading that gives back an equal struct.
//
// # Where to begin
//
// read.go; package noise and package latent are its users.
package diffusers
